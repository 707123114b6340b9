"""Hold it, pace it, let it through: messages that go out later, slower or in turn."""
