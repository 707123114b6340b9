"""The path of a visitor: join → wait → promote → enter → leave."""
