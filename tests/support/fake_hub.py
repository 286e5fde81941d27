"""A hub over loopback, as far as huggingface_hub asks for it: repositories, uploads by LFS, trees
and downloads.
"""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_goodtoken"


class Hub:
    """The contents of a hub, the requests that it had, and how it misbehaves."""

    def __init__(self):
        self.repositories = {}  # name -> {path: content}, of the main branch
        self.blobs = {}  # SHA-256 -> content
        self.asked = []  # (method, path)
        self.refused = {}  # part of a path -> status that is answered
        self.cut = set()  # ends of paths whose downloads break off in the middle
        self.url = ""

    def commit(self, repository):
        """The hash of the commit that its files are of."""
        contents = {
            path: hashlib.sha1(content).hexdigest()
            for path, content in self.repositories[repository].items()
        }
        return hashlib.sha1(json.dumps(contents, sort_keys=True).encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status, content=b"", **headers):
        if not isinstance(content, bytes):
            content, headers = (
                json.dumps(content).encode(),
                {"Content-Type": "application/json", **headers},
            )
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("size", len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _dispatch(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        body = self._body()
        hub.asked.append((self.command, path))
        for part, status in hub.refused.items():
            if part in path:
                return self._answer(status, {"error": "refused"}, X_Error_Message="refused")
        if self.command == "POST" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if path.startswith("/lfs/"):
            hub.blobs[path.removeprefix("/lfs/")] = body
            return self._answer(200)
        if path.startswith("/api/models/"):
            user, name, *rest = path.removeprefix("/api/models/").split("/")
            return self._of_repository(f"{user}/{name}", rest, body)
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        if "/resolve/" not in path:
            return self._answer(404)
        name, _, rest = path.strip("/").partition("/resolve/")
        return self._resolve(name, *rest.split("/", 1))

    do_GET = do_HEAD = do_POST = do_PUT = _dispatch  # noqa: N815

    def _create(self, asked):
        name = f"{asked.get('organization') or 'user'}/{asked['name']}"
        status = 409 if name in self.server.hub.repositories else 200
        self.server.hub.repositories.setdefault(name, {})
        return self._answer(status, {"url": f"{self.server.hub.url}/{name}", "name": name})

    def _of_repository(self, name, rest, body):
        hub = self.server.hub
        if name not in hub.repositories:
            return self._answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        files = hub.repositories[name]
        revision = rest[1] if rest[1:] else "main"
        if revision not in ("main", hub.commit(name)):
            return self._answer(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        match rest[:1]:
            case [] | ["revision"]:
                siblings = [{"rfilename": path} for path in files]
                return self._answer(
                    200, {"id": name, "sha": hub.commit(name), "siblings": siblings}
                )
            case ["tree"]:
                return self._answer(200, [_entry(path, content) for path, content in files.items()])
            case ["preupload"]:
                wanted = [
                    {**file, "uploadMode": _mode(file["path"])}
                    for file in json.loads(body)["files"]
                ]
                answers = [
                    {"path": w["path"], "uploadMode": w["uploadMode"], "shouldIgnore": False}
                    for w in wanted
                ]
                return self._answer(200, {"files": answers})
            case ["commit"]:
                return self._commit(name, [json.loads(line) for line in body.splitlines()])
        return self._answer(404)

    def _batch(self, asked):
        url = self.server.hub.url
        objects = [
            {**o, "actions": {"upload": {"href": f"{url}/lfs/{o['oid']}"}}}
            for o in asked["objects"]
        ]
        return self._answer(200, {"transfer": "basic", "objects": objects})

    def _commit(self, name, lines):
        hub, files = self.server.hub, dict(self.server.hub.repositories[name])
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = hub.blobs[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        hub.repositories[name] = files
        return self._answer(
            200,
            {
                "commitUrl": f"{hub.url}/{name}/commit/{hub.commit(name)}",
                "commitOid": hub.commit(name),
            },
        )

    def _resolve(self, name, revision, path):
        hub = self.server.hub
        if name not in hub.repositories:
            return self._answer(404, X_Error_Code="RepoNotFound")
        commit = hub.commit(name)
        if revision not in ("main", commit):
            return self._answer(404, X_Error_Code="RevisionNotFound")
        if path not in hub.repositories[name]:
            return self._answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        content = hub.repositories[name][path]
        headers = {
            "ETag": f'"{_oid(path, content)}"',
            "X_Repo_Commit": commit,
            "size": len(content),
        }
        if self.command == "HEAD":
            return self._answer(200, content, **headers)
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        end = len(content)
        if path.endswith(tuple(hub.cut)):
            end = max(start, len(content) // 2)
            self.close_connection = True
        headers["size"] = len(content) - start
        return self._answer(206 if start else 200, content[start:end], **headers)


def _mode(path):
    return "lfs" if path.endswith((".safetensors", ".npz", ".png")) else "regular"


def _oid(path, content):
    if _mode(path) == "lfs":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path, content):
    entry = {
        "type": "file",
        "path": path,
        "size": len(content),
        "oid": hashlib.sha1(content).hexdigest(),
    }
    if _mode(path) == "lfs":
        entry["lfs"] = {"oid": _oid(path, content), "size": len(content), "pointerSize": 130}
    return entry


@contextmanager
def serving():
    """A hub that answers until the context ends."""
    hub = Hub()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.hub, server.daemon_threads = hub, True
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
