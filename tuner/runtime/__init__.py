"""Winners are called from here: nothing but the standard library and cuda-python's bindings is needed."""
