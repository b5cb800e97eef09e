"""A page on this machine to try a translator: text in, translations, settings, and below them the attention page of a
sentence, with its candidates and their scores (Gradio, the extra `app`)."""

import html

from ..translation import Translator
from .collect import candidate_attention
from .page import attention_page

MOST_BEAMS = 10
ADDRESS = "127.0.0.1"  # nobody else is served


def serve(translator: Translator, *, port: int | None = None, open_browser: bool = False) -> None:
    """Serve the page until Ctrl-C.

    Args:
        port: the first free one from 7860 on, by default.

    Raises:
        ImportError: without Gradio.
        OSError: if the port is taken.
    """
    gradio = import_gradio()
    plain = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    page = build(translator)
    page.launch(
        server_name=ADDRESS, server_port=port, share=False, inbrowser=open_browser, theme=plain, footer_links=[]
    )


def import_gradio():
    try:
        import gradio
    except ImportError as error:
        raise ImportError("the page needs Gradio: pip install 'vanilla-transformer[app]'") from error
    return gradio


def translate(translator: Translator, text: str, num_beams: int, length_penalty: float) -> str:
    """Each line, translated."""
    settings = search_settings(num_beams, length_penalty)
    return "\n".join(found.text for found in translator(text.splitlines(), **settings))


def look_inside(
    translator: Translator, sentence: str | None, num_beams: int, length_penalty: float, n_best: int
) -> str:
    """The attention page of one sentence and its candidates, as a frame to be shown."""
    if not sentence:
        return ""
    settings = search_settings(num_beams, length_penalty) | {"n_best": min(n_best, num_beams)}
    page = attention_page(candidate_attention(translator.model, translator.tokenizer, sentence, **settings))
    # The page's scripts run in a frame of their own, which may ask nothing of the one around it.
    frame = f'<iframe sandbox="allow-scripts" title="attention" srcdoc="{html.escape(page)}"></iframe>'
    return f"<style>iframe {{ width: 100%; height: 60rem; border: 0 }}</style>{frame}"


def search_settings(num_beams: int, length_penalty: float) -> dict:
    return {"num_beams": num_beams, "length_penalty": length_penalty if num_beams > 1 else None}


def build(translator: Translator):
    """The page as `gradio.Blocks`, not yet served."""
    gradio = import_gradio()
    config = translator.model.generation_config
    beams = min(MOST_BEAMS, config.num_beams or 1)
    usual = 1.0 if config.length_penalty is None else config.length_penalty
    alone = {"concurrency_id": "model", "concurrency_limit": 1}  # a model does one thing at a time

    def told(work):
        """The message of a ValueError on the page, which otherwise says "Error" alone."""

        def run(*given):
            try:
                return work(*given)
            except ValueError as error:
                raise gradio.Error(str(error)) from error

        return run

    def answer(text, num_beams, length_penalty):
        lines = [line for line in text.splitlines() if line.strip()]
        shown = gradio.Dropdown(choices=lines, value=lines[0] if lines else None, visible=len(lines) > 1)
        return translate(translator, text, num_beams, length_penalty), shown

    with gradio.Blocks(title="vanilla-transformer", analytics_enabled=False) as page:
        gradio.Markdown(f"# {html.escape(str(translator.model.config._name_or_path)) or 'A translator'}")
        with gradio.Row():
            text = gradio.Textbox(label="Text, one sentence a line", lines=4, autofocus=True, elem_id="text")
            translation = gradio.Textbox(label="Translation", lines=4, interactive=False, elem_id="translation")
        with gradio.Row():
            num_beams = gradio.Slider(1, MOST_BEAMS, beams, step=1, label="Beams (1: greedy search)")
            n_best = gradio.Slider(1, MOST_BEAMS, beams, step=1, label="Candidates shown, at most one a beam")
            penalty = gradio.Slider(
                -1,
                3,
                usual,
                step=0.1,
                label="Length penalty: higher favours longer ones",
            )
        button = gradio.Button("Translate", variant="primary", elem_id="translate")
        sentence = gradio.Dropdown([], label="Look inside the translation of", visible=False, elem_id="sentence")
        maps = gradio.HTML(elem_id="attention")
        inside = [told(lambda *given: look_inside(translator, *given)), [sentence, num_beams, penalty, n_best]]
        answered = gradio.on(
            [button.click, text.submit], told(answer), [text, num_beams, penalty], [translation, sentence], **alone
        )
        answered.then(*inside, maps, **alone)
        sentence.input(*inside, maps, **alone)
    return page
