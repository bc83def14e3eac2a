"""An operation as an operator of torch: with a fake for torch.compile, gradients, and autocast where that is usual.

The operator is defined by ``torch.library`` from a schema, not by ``custom_op``: the dispatcher then costs 1.4 us a
call instead of 6.6 (torch 2.13 on a CPU). Its autograd kernel launches at once where no gradient is asked for
and nothing (a mode, a subclass, a transform) stands between it and the GPU's kernel.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..core.errors import CallError
from .arrays import one_or_all
from .entries import Manifest
from .interpret import scalar_values
from .torch_built_in import of_built_in
from .torch_gradients import Differentiated, Gradient, is_gemm, none, of_user
from .torch_launch import (
    Launcher,
    LinearLauncher,
    dense,
    fake_linear,
    linear_gradient,
    product_gradient,
)
from .torch_signature import Signature, signature_of

if TYPE_CHECKING:
    from .operation import Operation

NAMESPACE = "kernel_tune"
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_C, _forward_ad = torch._C, torch.autograd.forward_ad
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
_AFTER_AUTOGRAD = _C._after_autograd_keyset
_AUTOCAST = _C.DispatchKeySet(_C.DispatchKey.AutocastCUDA)
_DIRECT = ("CUDA", "CPU")
_direct: dict[int, bool] = {}


class TorchFunction:
    """A tuned kernel as an operator of torch.

    Call it with the tensors that the kernel reads, in its order; numbers and sizes go by name. It returns new tensors;
    one that the kernel changes in place is copied first, and the changed copy is returned.

    Attributes:
        operation: what it launches; its ``warm`` prepares what a CUDA graph captures.
        name: of the operator, such as ``kernel_tune::gemm_1a2b3c4d``.
        overload, linear_overload, in_place_overload: the operators themselves, as they stand in graphs of
            torch.compile; None where there is none.
    """

    def __init__(
        self, operation: Operation, overload: Any, in_place: Any, linear: Any, changed: Sequence[int]
    ) -> None:
        self.operation, self.overload, self.name = operation, overload, overload._schema.name
        self.in_place_overload, self.linear_overload, self._changed = in_place, linear, tuple(changed)

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        """Return the outputs, one or a tuple.

        Args:
            tensors: the inputs; of gemm ``a`` (m x k) and ``b`` (k x n), whose strides tell the layout.
            named: numbers instead of the kernel's own; sizes that no shape tells.

        Raises:
            CallError: the tensors are not what the kernel takes; nothing was launched.
            BundleError: the bundle is damaged, or does not fit this driver or GPU.
            DeviceError: the driver refuses.
        """
        return self.overload(*tensors, **named)

    def linear(self, x: Any, weight: Any) -> Any:
        """Return ``x @ weight.T`` (... x n); of gemm alone.

        Args:
            x: ... x k, with any leading dimensions.
            weight: n x k, as of ``torch.nn.Linear``.

        Raises:
            CallError, BundleError, DeviceError: as a call.
        """
        if self.linear_overload is None:
            raise CallError(f"{self.name} has no linear", "only the built-in gemm has")
        return self.linear_overload(x, weight)

    def in_place(self, *tensors: Any, **named: Any) -> Any:
        """Change tensors as the kernel does, and return them and its outputs; this has no gradient.

        Raises:
            CallError: the kernel changes none of its tensors; or as a call.
            BundleError, DeviceError: as a call.
        """
        if self.in_place_overload is None:
            raise CallError(f"{self.name} changes none of its tensors", "call it as a function")
        made = self.in_place_overload(*tensors, **named)
        return one_or_all([*(tensors[number] for number in self._changed), *_listed(made)])

    def __deepcopy__(self, _memo: Any) -> TorchFunction:
        return self

    def __repr__(self) -> str:
        return f"<{self.name}{str(self.overload._schema).removeprefix(self.name)}>"


def torch_function(
    operation: Operation,
    manifest: Manifest,
    computations: Sequence[int],
    choices: str,
    backward: Callable[..., Any] | None,
) -> TorchFunction:
    """Return an operation as a newly registered operator, which lives as long as the process.

    Args:
        operation: what is launched.
        manifest: its manifest.
        computations: numbers of those that may be meant.
        choices: what else the operation was loaded with.
        backward: a user's gradient.

    Raises:
        CallError: the computations take different tensors, or the gradient is no function.
    """
    if backward is not None and not callable(backward):
        raise CallError(
            f"backward is {backward!r}, not a function", "pass backward(grad, inputs, output), or nothing"
        )
    signature = signature_of(manifest, computations)
    name = _new_name(manifest, f"{choices} {_code(backward)}")

    def fake(*tensors: Any, **named: Any) -> list[Any]:
        return signature.fake_outputs(tensors, {size: named[size] for size in signature.sizes})

    def fake_function(*tensors: Any, **named: Any) -> Any:
        changed = [dense(tensors[number]) for number in signature.changed]
        return one_or_all([*changed, *fake(*tensors, **named)])

    def fake_mutating(*tensors: Any, **named: Any) -> Any:
        made = fake(*tensors, **named)
        return one_or_all(made) if made else None

    def described(
        dtypes: Sequence[Any], shapes: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[Sequence[str], Mapping[str, float], Mapping[str, Any]]:
        computation = signature.meant(dtypes, shapes)[0]
        trees = {each.name: each.value.tree for each in computation.scalars}
        own = {name: tree for name, tree in trees.items() if isinstance(tree, (int, float))}
        given = {key: value for key, value in named.items() if key in signature.scalars and value is not None}
        names = [tensor.name for tensor in signature.inputs]
        return names, scalar_values(computation, {**own, **given}), computation.options

    product, linear, in_place = is_gemm(manifest), None, None
    launcher = Launcher(operation, signature, fake_function, empty_means_zeros=product)
    if backward is not None:
        gradient = of_user(backward, manifest.kernel)
    elif product:
        gradient = product_gradient(signature, lambda a, b: overload(a, b))
    else:
        gradient = of_built_in(manifest) or none(manifest.kernel)
    overload = _define(
        name, signature.schema(in_place=False), launcher, fake_function, gradient, described, autocast=product
    )
    if product:
        fake_rows = functools.partial(fake_linear, fake_function)
        linear = _define(
            f"{name}_linear",
            "(Tensor x, Tensor weight) -> Tensor",
            LinearLauncher(operation, signature, fake_rows, empty_means_zeros=True),
            fake_rows,
            linear_gradient(signature, lambda a, b: overload(a, b)),
            lambda *_: ((), {}, {}),
            autocast=True,
        )
    if signature.changed:
        in_place = _define_mutating(
            f"{name}_",
            signature,
            Launcher(operation, signature, fake_mutating, in_place=True),
            fake_mutating,
        )
    return TorchFunction(operation, overload, in_place, linear, signature.changed)


def _new_name(manifest: Manifest, choices: str) -> str:
    """Return a name that is the same in each process for the same winners: caches of torch.compile go by it."""
    digest = hashlib.sha256(f"{manifest} {choices}".encode()).hexdigest()[:8]
    first = name = f"{re.sub(r'[^A-Za-z0-9]|^(?=[0-9])', '_', manifest.kernel)}_{digest}"
    number = 1
    while hasattr(getattr(torch.ops, NAMESPACE), name):  # loaded again, or by another copy of this module
        number += 1
        name = f"{first}_{number}"
    return name


def _code(backward: Callable[..., Any] | None) -> str:
    """Return what tells a function from another, as far as its text decides."""
    name = getattr(backward, "__qualname__", type(backward).__name__)
    if (code := getattr(backward, "__code__", None)) is None:
        return name
    constants = [each for each in code.co_consts if not hasattr(each, "co_code")]
    return f"{name} {code.co_code.hex()} {code.co_names} {constants}"


def _listed(made: Any) -> list[Any]:
    return [] if made is None else list(made) if isinstance(made, tuple) else [made]


def _is_direct(keyset: Any) -> bool:
    """Return whether the dispatcher would call the GPU's kernel next."""
    raw = keyset.raw_repr()
    direct = _direct.get(raw)
    if direct is None:
        rest = (keyset & _AFTER_AUTOGRAD).remove(_C.DispatchKey.ADInplaceOrView)
        direct = _direct[raw] = _C._dispatch_key_name(rest.highestPriorityTypeId()) in _DIRECT
    return direct


def _needs_gradient(tensors: Sequence[Any]) -> bool:
    if _forward_ad._current_level >= 0:  # torch then refuses tensors with a tangent
        return True
    if torch.is_grad_enabled():
        for tensor in tensors:  # a generator would cost 0.2 us
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def _registered(name: str, schema: str, launcher: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Return a new operator that has no autograd kernel yet."""
    _library.define(f"{name}{schema}", tags=_TAGS)
    overload = getattr(getattr(torch.ops, NAMESPACE), name).default
    _library.impl(name, launcher, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    return overload


def _define(
    name: str,
    schema: str,
    launcher: Callable[..., Any],
    fake: Callable[..., Any],
    gradient: Gradient,
    described: Callable[..., tuple[Sequence[str], Mapping[str, float], Mapping[str, Any]]],
    *,
    autocast: bool,
) -> Any:
    """Return a new operator that changes nothing."""
    overload = _registered(name, schema, launcher, fake)

    def below(keyset: Any, tensors: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if _is_direct(keyset):
            return launcher(*tensors, **named)
        with _C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & _AFTER_AUTOGRAD, *tensors, **named)

    def forward(ctx: Any, keyset: Any, named: Mapping[str, Any], *tensors: Any) -> Any:
        made = below(keyset, tensors, named)
        listed = _listed(made)
        ctx.mark_non_differentiable(*(listed[each] for each in gradient.constants if each < len(listed)))
        keeps = gradient.keeps(ctx.needs_input_grad[2:])
        kept = [each if keep else None for each, keep in zip(tensors, keeps, strict=False)]
        ctx.save_for_backward(*kept, *(listed if keeps[-1] else ()))
        ctx.named = named
        ctx.kinds = [(None, None) if each is None else (each.dtype, each.shape) for each in tensors]
        return made

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        saved, (dtypes, shapes) = ctx.saved_tensors, zip(*ctx.kinds, strict=True)
        inputs, outputs = saved[: len(dtypes)], saved[len(dtypes) :]
        names, scalars, options = described(dtypes, shapes, ctx.named)
        needs = ctx.needs_input_grad[2:]
        call = Differentiated(
            grads, names, inputs, outputs, dtypes, shapes, needs, scalars, options, overload
        )
        return (None, None, *gradient.formula(call))

    own = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(name, (torch.autograd.Function,), own)

    def autograd(keyset: Any, *tensors: Any, **named: Any) -> Any:
        if _needs_gradient(tensors):
            if not _C._are_functorch_transforms_active():
                return function.apply(keyset, named, *tensors)
            # One level of a transform of torch.func:
            with torch._functorch.utils.enable_single_level_autograd_function():
                return super(torch.autograd.Function, function).apply(keyset, named, *tensors)
        return below(keyset, tensors, named)

    _library.impl(name, autograd, "Autograd", with_keyset=True)

    def cast(_keyset: Any, *tensors: Any, **named: Any) -> Any:
        dtype = torch.get_autocast_dtype("cuda")
        with _C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return overload(*(_lowered(tensor, dtype) for tensor in tensors), **named)

    if autocast:
        _library.impl(name, cast, "AutocastCUDA", with_keyset=True)
    return overload


def _lowered(tensor: Any, dtype: Any) -> Any:
    """Return a tensor in the dtype of autocast; as for torch's own products, float64 stays."""
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != torch.float64 else tensor


def _define_mutating(
    name: str, signature: Signature, launcher: Callable[..., Any], fake: Callable[..., Any]
) -> Any:
    """Return a new operator that changes tensors, and has no gradient."""
    overload = _registered(name, signature.schema(in_place=True), launcher, fake)

    def autograd(keyset: Any, *tensors: Any, **named: Any) -> Any:
        if _needs_gradient(tensors):
            raise CallError(
                f"{NAMESPACE}::{name} changes its tensors, and has no gradient",
                "call the function without in_place",
            )
        for number in signature.changed:
            if not tensors[number].is_inference():
                torch.autograd.graph.increment_version(tensors[number])
        with _C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & _AFTER_AUTOGRAD, *tensors, **named)

    _library.impl(name, autograd, "Autograd", with_keyset=True)
    return overload
