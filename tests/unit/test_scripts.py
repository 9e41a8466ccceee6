"""Modules that become one script."""

import pytest

from oar.web.assets import served


def test_a_module_is_a_function_behind_those_that_it_imports() -> None:
    found = served(
        {
            "js/pages/job.js": 'import { one, two as second } from "../common/parts.js";\nshow(one, second);\n',
            "js/common/parts.js": (
                'import { t } from "./job-words.js";\nexport const one = t;\nexport function two() {}\n'
            ),
            "js/common/job-words.js": "const answer = await fetch();\nexport async function t() {}\n",
        }
    )
    assert found == {
        "js/pages/job.js": (
            "const $common_job_words = await (async () => {\n"
            "const answer = await fetch();\nasync function t() {}\nreturn { t };\n})();\n"
            "const $common_parts = (() => {\n"
            "const { t } = $common_job_words;\nconst one = t;\nfunction two() {}\nreturn { one, two };\n})();\n"
            "const $pages_job = (() => {\n"
            "const { one, two: second } = $common_parts;\nshow(one, second);\nreturn {  };\n})();\n"
        )
    }


def test_what_a_page_begins_with_is_no_module_and_not_again_in_the_script_of_the_page() -> None:
    found = served(
        {
            "js/gantt/first.js": 'import { site } from "../common/site.js";\nexport const engine = site;\n',
            "js/common/site.js": "export const site = 1;\n",
            "js/pages/gantt.js": (
                'import { site } from "../common/site.js";\nimport { engine } from "../gantt/first.js";\n'
                "show(site, engine);\n"
            ),
        }
    )
    assert found == {
        "js/gantt/first.js": (
            '"use strict";\nconst $common_site = (() => {\nconst site = 1;\nreturn { site };\n})();\n'
            "const $gantt_first = (() => {\n"
            "const { site } = $common_site;\nconst engine = site;\nreturn { engine };\n})();\n"
        ),
        "js/pages/gantt.js": (
            "const $pages_gantt = (() => {\nconst { site } = $common_site;\nconst { engine } = $gantt_first;\n"
            "show(site, engine);\nreturn {  };\n})();\n"
        ),
    }


def test_what_a_page_begins_with_cannot_wait() -> None:
    texts = {"js/gantt/first.js": "const answer = await fetch();\n", "js/pages/gantt.js": ""}
    with pytest.raises(ValueError, match=r"js/gantt/first\.js: a script that is not a module cannot wait"):
        served(texts)


def test_what_is_imported_later_is_there_already() -> None:
    found = served(
        {
            "js/pages/job.js": 'const later = () => import("../job-output.js");\n',
            "js/job-output.js": "export function output() {}\n",
        }
    )
    assert found == {
        "js/pages/job.js": (
            "const $job_output = (() => {\nfunction output() {}\nreturn { output };\n})();\n"
            "const $pages_job = (() => {\nconst later = () => Promise.resolve($job_output);\nreturn {  };\n})();\n"
        )
    }


def test_a_script_that_is_no_module_stays_as_it_is() -> None:
    assert served({"js/theme.js": '"use strict";\n{ const theme = 1; }\n'}) == {
        "js/theme.js": '"use strict";\n{ const theme = 1; }\n'
    }


@pytest.mark.parametrize(
    "text",
    [
        'import parts from "./parts.js";\n',
        'import { one }\n  from "./parts.js";\n',
        "export default 1;\n",
        "export { one };\n",
        "export let one = 1;\n",
    ],
)
def test_what_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"js/page\.js: an import or an export has an unsupported"):
        served({"js/page.js": text, "js/parts.js": ""})


def test_modules_that_need_each_other_are_refused() -> None:
    texts = {
        "js/one.js": 'import { two } from "./two.js";\nexport const one = 1;\n',
        "js/two.js": 'import { one } from "./one.js";\nexport const two = 2;\n',
    }
    with pytest.raises(ValueError, match="imports itself"):
        served({**texts, "js/page.js": 'import { one } from "./one.js";\n'})


def test_a_name_that_is_not_exported_is_refused() -> None:
    with pytest.raises(ValueError, match=r"js/page\.js: js/one\.js exports no two"):
        served(
            {"js/page.js": 'import { one, two as second } from "./one.js";\n', "js/one.js": "export const one = 1;\n"}
        )
