"""The pictures of the documents: of each page one, as the command takes it."""

import struct
from pathlib import Path

from playwright.sync_api import Browser

from docs.take_pictures import DIRECTORY, PICTURES, VIEWPORT, take
from oar.lib.db.database import Database
from tests.api.conftest import Api


def _size(path: Path) -> tuple[int, int]:
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width, height


def test_each_page_has_its_picture() -> None:
    assert {path.stem for path in DIRECTORY.iterdir()} == set(PICTURES)
    assert {_size(path) for path in DIRECTORY.iterdir()} == {VIEWPORT}


def test_pictures_are_taken(chromium: Browser, api: Api, database: Database, tmp_path: Path) -> None:
    take(chromium, api, database, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.png")} == set(PICTURES)
    assert {_size(path) for path in tmp_path.glob("*.png")} == {VIEWPORT}
