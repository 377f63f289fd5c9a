"""The report's page as a browser takes it: its script is the one that it allows, and nothing comes from elsewhere."""
# SPDX-License-Identifier: MIT
import base64
import hashlib
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PROGRAM = os.environ.get("ADAMOD", os.path.join(ROOT, "build", "adamod"))


class Page(unittest.TestCase):
    def test_the_only_script_is_the_one_it_allows(self):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            os.mkdir(run)
            with open(os.path.join(run, "recipe.yaml"), "w") as file:
                file.write("name: net\n")
            page = os.path.join(folder, "page.html")
            subprocess.run([PROGRAM, "report", run, "-o", page], check=True, capture_output=True)
            with open(page, encoding="utf-8") as file:
                text = file.read()
        scripts = re.findall("<script>(.*?)</script>", text, re.S)
        self.assertEqual(text.count("<script"), 1)
        digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
        policy = re.search('Content-Security-Policy" content="([^"]*)"', text).group(1)
        self.assertEqual(
            policy, f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
        )
        self.assertNotIn("http:", text)
        self.assertNotIn("https:", text)
        self.assertNotRegex(text, r"(src|href)=\"(?!data:|page-tables/)")


if __name__ == "__main__":
    unittest.main()
