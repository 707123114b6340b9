"""Reverse proxies from Debian that pass `Upgrade` on and keep their connections to the server."""

from __future__ import annotations

import socket
from abc import abstractmethod
from pathlib import Path

from systems.servers.ports import free_port
from systems.servers.process import ServerProcess

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream penstock {{ server {upstream}; keepalive 1; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://penstock;
      proxy_http_version 1.1;
      proxy_request_buffering off;
      proxy_max_temp_file_size 0;
      proxy_set_header Host $host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $http_connection;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""
HAPROXY = """
global
  maxconn 256
  nbthread 1
defaults
  mode http
  timeout connect 60s
  timeout client 60s
  timeout server 60s
  http-reuse always
  option forwardfor
frontend in
  bind 127.0.0.1:{port}
  default_backend penstock
backend penstock
  server one {upstream} pool-max-conn 1
"""


class ReverseProxy(ServerProcess):
    """One in front of one server."""

    template: str

    def __init__(self, folder: Path, upstream: tuple[str, int]) -> None:
        super().__init__(folder)
        self._upstream = "{}:{}".format(*upstream)
        self.address = ("127.0.0.1", free_port())

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.address)

    @property
    def settings_file(self) -> Path:
        return self.folder / "proxy.conf"

    def before_start(self) -> None:
        told = {"folder": self.folder, "port": self.address[1], "upstream": self._upstream}
        self.settings_file.write_text(self.template.format(**told))

    @abstractmethod
    def command(self) -> list[str]: ...

    def answers(self) -> bool:
        """It listens; asking more would need the server behind it."""
        try:
            with socket.create_connection(self.address, timeout=2):
                return True
        except OSError:
            return False


class Nginx(ReverseProxy):
    template = NGINX

    def command(self) -> list[str]:
        return ["/usr/sbin/nginx", "-c", str(self.settings_file), "-p", str(self.folder)]


class HAProxy(ReverseProxy):
    template = HAPROXY

    def command(self) -> list[str]:
        return ["/usr/sbin/haproxy", "-db", "-f", str(self.settings_file)]
