"""DynamicResources: the Pod's claims get their devices. Only the plugin; the allocator is ``scheduler.dra``.

Here: what each extension point does with the allocator's answers, upstream's texts, wake-up rules. Never here: device
search, API calls (instructions only), knowledge of other plugins.
"""

from plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
