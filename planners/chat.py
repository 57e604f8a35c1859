"""A bundle's chat template: messages as the text that its target was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from planners.small_files import small_file
from runtime.errors import BundleError, SlipstreamError

CHAT_TEMPLATE = "chat_template.jinja"
LARGEST_TEMPLATE = 1 << 24  # bytes; the largest published ones have some 20 kB
_FIX = "save the checkpoint's chat template beside its weights, and export it again"


class ChatTemplate:
    """`chat_template.jinja`, run in jinja's sandbox: a template can't reach beyond its messages.

    Raises:
        BundleError: there is none, or it is no template.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        environment = ImmutableSandboxedEnvironment(
            # not optimized: that would compute what a template holds when it is read
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols],
            optimized=False,
        )
        environment.globals["raise_exception"] = _refuse
        try:
            text = small_file(path, LARGEST_TEMPLATE).decode("utf-8-sig")
            self._template = environment.from_string(text)
        except FileNotFoundError as error:
            raise self._error("a chat template", "no such file") from error
        except Exception as error:  # what is wrong with a template may be anything of Python's
            raise self._error("a jinja template", described(error)) from error

    def render(self, messages: Sequence[dict[str, Any]]) -> str:
        """The text of a conversation, up to where the assistant speaks.

        Raises:
            BundleError: the template refuses such messages.
        """
        try:
            return self._template.render(
                messages=list(messages), add_generation_prompt=True, bos_token="", eos_token=""
            )
        except Exception as error:  # a template may raise anything that its expressions do
            wanted = "a template for a system and a user message"
            raise self._error(wanted, described(error)) from error

    def _error(self, expected: str, found: str) -> BundleError:
        return BundleError(
            f"{self.path} can't write the prompt", expected=expected, found=found[:200], fix=_FIX
        )


def text_template(text: str, source: str) -> Template:
    """A text with expressions of its own, in the same sandbox.

    Raises:
        SlipstreamError: it is no template.
    """
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, optimized=False)
    try:
        return environment.from_string(text)
    except Exception as error:  # as above
        raise SlipstreamError(
            f"{source} has a text that is no template",
            expected="jinja, such as {{ '%.1f'|format(speed) }}",
            found=f"{described(error)} in {text[:80]!r}",
            fix="see docs/cameras.md",
        ) from error


def described(error: Exception) -> str:
    """An error of a template in a few words."""
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__


def _refuse(message: str) -> None:
    raise TemplateError(message)
