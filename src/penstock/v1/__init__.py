"""`penstock.v1` of the gRPC API: generated from proto/ by scripts/proto.py, not written by hand."""
