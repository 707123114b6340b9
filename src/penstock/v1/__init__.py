"""`penstock.v1` of the gRPC API: what scripts/proto.py makes of proto/, and its values as ours."""
