"""Pixels scaled and augmented on the device that they are learnt from.

Each augmentation is a small callable: tensors in, a new tensor of the same dtype out, on the same device. They take
``(batch, ..., height, width)``, or with ``channels_last`` ``(batch, ..., height, width, channels)``, of any dtype that
PyTorch can index. Every row of the batch is changed in a way of its own, and all that belongs to a row (the frames of
its stack, of its sequence, and their channels) in the same way, so that motion between them stays what it was.

======================  ============================  =============================================================
what                    out                           source
======================  ============================  =============================================================
:func:`scale_pixels`    floats from 0 to 1            -
:class:`RandomShift`    same size                     DrQ (Kostrikov, Yarats and Fergus 2020)
:class:`RandomCrop`     smaller                       CURL (Laskin, Srinivas and Abbeel 2020), RAD (Laskin et al. 2020)
:class:`CenterCrop`     smaller, what was in between  the same, for acting
:class:`Intensity`      same size                     DrQ
:class:`HorizontalFlip` same size                     RAD, DrQ
:class:`Cutout`         same size                     RAD
======================  ============================  =============================================================

``generator`` decides what is drawn, and a call draws anew: observation and next observation are changed differently.
One on the CPU draws the same for every device, and a few bytes a row travel; one on the device moves nothing; ``None``
is PyTorch's own of the pixels' device.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from framestow.argument_checks import real_number, whole_number
from framestow.errors import InvalidSettingsError

_LARGEST_PIXEL = 255


def scale_pixels(pixels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Turn ``uint8`` pixels into floats from 0 to 1, k / 255 rounded to the nearest; floats are taken for scaled.

    One new tensor is made, none beside it. What is of ``dtype`` already comes back as it is.

    >>> scale_pixels(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    """
    floats = pixels.to(dtype)
    return floats.div_(_LARGEST_PIXEL) if pixels.dtype == torch.uint8 else floats


class RandomShift:
    """Shifts each row by up to ``pad`` pixels either way; what comes in at an edge repeats the edge.

    DrQ's augmentation: padded by replication, then cropped at random to the size that it had. Each of the
    ``(2 pad + 1)²`` shifts is equally likely. Done by index, so every pixel that goes out is one that came in, whatever
    the dtype, and no padded copy is made. (DrQ-v2 shifts by parts of a pixel and interpolates; this does not.)
    """

    def __init__(self, pad: int = 4, generator: Generator | None = None, *, channels_last: bool = False) -> None:
        pad = whole_number("pad", pad, 0, rule="pictures are shifted by 0 pixels or more; give 4, as DrQ does")
        self.pad, self.generator, self.channels_last = pad, generator, channels_last

    def __call__(self, pixels: Tensor) -> Tensor:
        """Shift ``pixels``; the same shape and dtype, contiguous."""
        height, width = _size(pixels, self.channels_last)
        rows = self._shifted(height, pixels)
        columns = self._shifted(width, pixels)
        return _picked(pixels, rows, columns, self.channels_last)

    def _shifted(self, size: int, pixels: Tensor) -> Tensor:
        shifts = _integers(-self.pad, self.pad, pixels, self.generator)
        return _places(shifts, size, pixels).clamp_(0, size - 1)


class RandomCrop:
    """Cuts a part of ``height`` by ``width`` out of each row, every place equally likely: 84 out of 100 in CURL."""

    def __init__(
        self, height: int, width: int, generator: Generator | None = None, *, channels_last: bool = False
    ) -> None:
        self.height, self.width, self.generator, self.channels_last = height, width, generator, channels_last

    def __call__(self, pixels: Tensor) -> Tensor:
        """Crop ``pixels``; raises ``InvalidSettingsError`` where they are smaller than the part."""
        spare_rows, spare_columns = _spare(pixels, self.height, self.width, self.channels_last)
        top = _integers(0, spare_rows, pixels, self.generator)
        left = _integers(0, spare_columns, pixels, self.generator)
        rows, columns = _places(top, self.height, pixels), _places(left, self.width, pixels)
        return _picked(pixels, rows, columns, self.channels_last)


class CenterCrop:
    """Cuts the middle of ``height`` by ``width`` out of every row: what to act on, where learning crops at random.

    Where the border is odd, the smaller half of it is above and to the left.
    """

    def __init__(self, height: int, width: int, *, channels_last: bool = False) -> None:
        self.height, self.width, self.channels_last = height, width, channels_last

    def __call__(self, pixels: Tensor) -> Tensor:
        """Give a view of ``pixels``; raises ``InvalidSettingsError`` where they are smaller than the part."""
        spare_rows, spare_columns = _spare(pixels, self.height, self.width, self.channels_last)
        height_axis, width_axis = _axes(self.channels_last)
        middle = pixels.narrow(height_axis, spare_rows // 2, self.height)
        return middle.narrow(width_axis, spare_columns // 2, self.width)


class Intensity:
    """Multiplies each row by ``1 + scale * r``, r normal and cut off at -2 and 2: brighter or darker as a whole.

    DrQ's, with a ``scale`` of 0.1 there. ``uint8`` pixels are rounded to the nearest and kept within 0 to 255; floats
    are not kept within 0 to 1.
    """

    def __init__(self, scale: float = 0.1, generator: Generator | None = None) -> None:
        self.scale, self.generator = scale, generator

    def __call__(self, pixels: Tensor) -> Tensor:
        """Multiply ``pixels``; the same shape and dtype."""
        normal = torch.randn(len(pixels), generator=self.generator, device=_drawn_on(pixels, self.generator))
        factors = normal.clamp_(-2, 2).mul_(self.scale).add_(1).to(pixels.device)
        factors = _for_each_row(factors, pixels)
        if pixels.dtype == torch.uint8:
            return (pixels * factors).round_().clamp_(0, _LARGEST_PIXEL).to(torch.uint8)
        return pixels * factors.to(pixels.dtype)


class HorizontalFlip:
    """Mirrors each row, left for right, with ``probability``: 0.1 in DrQ, 0.2 in RAD.

    Only where the game does not mind: a mirrored picture with the action that was right before it is wrong in most.
    """

    def __init__(
        self, probability: float = 0.1, generator: Generator | None = None, *, channels_last: bool = False
    ) -> None:
        rule = "it is between 0 and 1; give 0.1, as DrQ does"
        probability = real_number("probability", probability, 0, 1, rule=rule)
        self.probability, self.generator, self.channels_last = probability, generator, channels_last

    def __call__(self, pixels: Tensor) -> Tensor:
        """Mirror some of ``pixels``; the same shape and dtype."""
        chances = torch.rand(len(pixels), generator=self.generator, device=_drawn_on(pixels, self.generator))
        is_flipped = _for_each_row((chances < self.probability).to(pixels.device), pixels)
        return torch.where(is_flipped, pixels.flip(_axes(self.channels_last)[1]), pixels)


class Cutout:
    """Fills a box of each row with ``fill``: its sides ``smallest`` to ``largest`` pixels, its place wherever it fits.

    RAD's augmentation with RAD's sizes for pictures of 84 by 84. (RAD's published code puts the box as far from the
    corner as it is large; here every place is equally likely.)
    """

    def __init__(
        self,
        smallest: int = 10,
        largest: int = 30,
        fill: float = 0,
        generator: Generator | None = None,
        *,
        channels_last: bool = False,
    ) -> None:
        rule = "a box has sides of 0 pixels or more, the smallest first; give 10 and 30, as RAD does"
        largest = whole_number("largest", largest, 0, rule=rule)
        smallest = whole_number("smallest", smallest, 0, rule=rule)
        if smallest > largest:
            raise InvalidSettingsError(f"smallest is {smallest} and largest {largest}: {rule}")
        fill = real_number("fill", fill, -math.inf, rule="it is a finite number, as pixels are")
        self.smallest, self.largest, self.fill = smallest, largest, fill
        self.generator, self.channels_last = generator, channels_last

    def __call__(self, pixels: Tensor) -> Tensor:
        """Fill a box in ``pixels``; raises ``InvalidSettingsError`` where they are smaller than ``largest``."""
        _spare(pixels, self.largest, self.largest, self.channels_last)
        height, width = _size(pixels, self.channels_last)
        is_row_in_box, is_column_in_box = self._in_box(height, pixels), self._in_box(width, pixels)
        is_in_box = is_row_in_box[:, :, None] & is_column_in_box[:, None, :]
        return pixels.masked_fill(_over_pictures(is_in_box, pixels, self.channels_last), self.fill)

    def _in_box(self, size: int, pixels: Tensor) -> Tensor:
        """Which places along one side lie in each row's box, ``(batch, size)``."""
        sides = _integers(self.smallest, self.largest, pixels, self.generator)
        chances = torch.rand(len(pixels), generator=self.generator, device=_drawn_on(pixels, self.generator))
        starts = (chances.to(pixels.device, torch.float64) * (size - sides + 1)).long()[:, None]
        places = torch.arange(size, device=pixels.device)
        return (places >= starts) & (places < starts + sides[:, None])


def _axes(channels_last: bool) -> tuple[int, int]:
    """Which axes are height and width."""
    return (-3, -2) if channels_last else (-2, -1)


def _size(pixels: Tensor, channels_last: bool) -> tuple[int, int]:
    height_axis, width_axis = _axes(channels_last)
    if pixels.dim() < 1 - height_axis:
        axes = "(batch, ..., height, width, channels)" if channels_last else "(batch, ..., height, width)"
        raise InvalidSettingsError(f"pixels have the shape {tuple(pixels.shape)}: they must be {axes}; add the axis")
    return pixels.shape[height_axis], pixels.shape[width_axis]


def _spare(pixels: Tensor, height: int, width: int, channels_last: bool) -> tuple[int, int]:
    """How many rows and columns ``pixels`` have beyond ``height`` and ``width``."""
    full_height, full_width = _size(pixels, channels_last)
    if full_height < height or full_width < width:
        raise InvalidSettingsError(
            f"pixels are {full_height} by {full_width}: a part of {height} by {width} does not fit; take a smaller one"
        )
    return full_height - height, full_width - width


def _drawn_on(pixels: Tensor, generator: Generator | None) -> torch.device:
    return pixels.device if generator is None else generator.device


def _integers(least: int, most: int, pixels: Tensor, generator: Generator | None) -> Tensor:
    """Draw one integer a row of ``pixels``, ``least`` to ``most`` equally likely, onto their device."""
    device = _drawn_on(pixels, generator)
    drawn = torch.randint(least, most + 1, (len(pixels),), generator=generator, device=device)
    return drawn.to(pixels.device, non_blocking=True)


def _places(starts: Tensor, size: int, pixels: Tensor) -> Tensor:
    """``size`` places from each of ``starts`` on, ``(batch, size)``."""
    return starts[:, None] + torch.arange(size, device=pixels.device)


def _picked(pixels: Tensor, rows: Tensor, columns: Tensor, channels_last: bool) -> Tensor:
    """Pick ``rows`` and ``columns``, ``(batch, height)`` and ``(batch, width)``, out of the pictures of each row."""
    height_axis, width_axis = _axes(channels_last)
    # One gather over pictures laid flat: 0.5 ms for 32 stacks of four 84x84 frames on one core; one axis after the
    # other 1.5, indexing with four broadcast tensors 4.8.
    in_flat = rows[:, :, None] * pixels.shape[width_axis] + columns[:, None, :]
    flat = pixels.flatten(height_axis, width_axis)
    shape = [*pixels.shape]
    shape[height_axis], shape[width_axis] = in_flat.shape[1:]
    places = _over_pictures(in_flat, pixels, channels_last).expand(shape).flatten(height_axis, width_axis)
    return flat.gather(width_axis, places).view(shape)


def _over_pictures(pictures: Tensor, pixels: Tensor, channels_last: bool) -> Tensor:
    """Give ``(batch, height, width)`` the axes of ``pixels`` in between, and that of the channels, of length 1."""
    num_between = pixels.dim() - 3 - channels_last
    shape = (len(pictures), *[1] * num_between, *pictures.shape[1:], *[1] * channels_last)
    return pictures.view(shape)


def _for_each_row(values: Tensor, pixels: Tensor) -> Tensor:
    return values.view(len(pixels), *[1] * (pixels.dim() - 1))
