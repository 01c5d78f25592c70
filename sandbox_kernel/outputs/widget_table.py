"""The models of ipywidgets: which view shows each, and the names of their traits (read from ipywidgets 8.1).

A view is looked up together with its model. By itself a known name proves nothing: a text box that asks to be shown as
an HTML widget would put its text into the page as markup.
"""

from __future__ import annotations

from .settings import words

BASE, CONTROLS, OUTPUT = "@jupyter-widgets/base", "@jupyter-widgets/controls", "@jupyter-widgets/output"
PROTOCOL = "2.1.0"

_OWN_VIEW = words(
    "Accordion Audio Box Button Checkbox ColorPicker ColorsInput Combobox Controller ControllerAxis ControllerButton"
    " DatePicker Datetime Dropdown FileUpload FloatLogSlider FloatRangeSlider FloatSlider FloatText FloatsInput GridBox"
    " HBox HTMLMath HTML Image IntRangeSlider IntSlider IntText IntsInput Label Password Play RadioButtons Select"
    " SelectMultiple SelectionRangeSlider SelectionSlider Stack Tab TagsInput Text Textarea Time ToggleButton"
    " ToggleButtons VBox Valid Video"
)
_OTHER_VIEW = {
    "BoundedFloatText": "FloatText", "BoundedIntText": "IntText", "FloatProgress": "Progress",
    "IntProgress": "Progress", "NaiveDatetime": "Datetime",
}  # fmt: skip
_STYLES = words(
    "Button Checkbox Description HTMLMath HTML Label Progress Slider String Text ToggleButton ToggleButtons"
)

# (model's module, model) -> (view's module, view)
VIEWS: dict[tuple[str, str], tuple[str, str]] = {
    (BASE, "LayoutModel"): (BASE, "LayoutView"),
    (BASE, "StyleModel"): (BASE, "StyleView"),
    (OUTPUT, "OutputModel"): (OUTPUT, "OutputView"),
    **{(CONTROLS, f"{name}Model"): (CONTROLS, f"{name}View") for name in _OWN_VIEW},
    **{(CONTROLS, f"{name}Model"): (CONTROLS, f"{view}View") for name, view in _OTHER_VIEW.items()},
    **{(CONTROLS, f"{name}StyleModel"): (BASE, "StyleView") for name in _STYLES},
}

# What says what a model is; may be said once, when it is opened.
IDENTITY = words(
    "_model_module _model_module_version _model_name _view_module _view_module_version _view_name"
)
TRAITS = words(
    """
    _dom_classes _options_labels _view_count accept align_content align_items align_self allow_duplicates allowed_tags
    autoplay axes background bar_color bar_style base behavior border_bottom border_left border_right border_top
    box_style button_color button_style button_width buttons children concise connected continuous_update controls
    description description_allow_html description_width disabled display ensure_option error flex flex_flow font_family
    font_size font_style font_variant font_weight format grid_area grid_auto_columns grid_auto_flow grid_auto_rows
    grid_column grid_gap grid_row grid_template_areas grid_template_columns grid_template_rows handle_color height icon
    icons indent index interval justify_content justify_items layout loop mapping margin max max_height max_width min
    min_height min_width msg_id multiple name object_fit object_position options order orientation outputs overflow
    padding placeholder playing pressed readout readout_format repeat rows selected_index show_repeat step style
    tabbable tag_style text_color text_decoration timestamp titles tooltip tooltips value visibility width
    """
)
MARKUP = frozenset({"HTMLModel", "HTMLMathModel"})
MEDIA = {
    "ImageModel": frozenset({"png", "jpg", "jpeg", "gif", "webp", "bmp", "svg", "svg+xml"}),
    "AudioModel": frozenset({"mp3", "wav", "ogg", "mpeg", "mp4", "webm", "flac", "aac"}),
    "VideoModel": frozenset({"mp4", "ogg", "webm"}),
}
