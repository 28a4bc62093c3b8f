"""What Sebra's speed is measured against: the loops as such code is usually written.

`rank` and `debias_epoch` are the plain reference: PIL images kept decoded in memory, torchvision
transforms in eight DataLoader workers, TF32, one full pass to train and one to select per epoch;
the debiasing epoch loads an anchor, a positive and a negative per item and runs a network pass for
each of them. `Eager` is a stronger one: images already on the device, bf16 autocast, channels_last,
no data loader, plain eager PyTorch. Nothing here imports Sebra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass
class Settings:
    """The settings of a ranking or of a debiasing epoch, by the method's names."""

    batch: int = 128
    epochs: int = 50
    optimizer: str = "sgd"
    lr: float = 1e-3
    momentum: float = 0.1
    weight_decay: float = 1e-3
    p_critical: float = 0.75
    beta: float = 1.25
    gamma: float = 0.5
    tau: float = 0.05
    workers: int = 8


def use_tf32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True


def pictures(pixels: Any) -> list[Any]:
    """Decoded PIL images, kept in memory."""
    from PIL import Image

    return [Image.fromarray(np.ascontiguousarray(p)) for p in pixels]


class Pictures(Dataset):  # type: ignore[type-arg]
    """Images with labels and their number; training ones are mirrored at random."""

    def __init__(self, images: Sequence[Any], labels: Any, train: bool) -> None:
        from torchvision import transforms

        steps = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        flip = [transforms.RandomHorizontalFlip()] if train else []
        self.transform = transforms.Compose([*flip, *steps])
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int, int]:
        return self.transform(self.images[i]), int(self.labels[i]), i


class Triples(Pictures):
    """An anchor, a less spurious sample of its class and an equally spurious one."""

    def __init__(self, images: Sequence[Any], labels: Any, bucket: Any) -> None:
        super().__init__(images, labels, train=True)
        self.groups: dict[tuple[int, int], Any] = {}
        self.bucket = bucket
        for c in np.unique(labels):
            for b in np.unique(bucket):
                self.groups[int(c), int(b)] = np.flatnonzero((labels == c) & (bucket == b))
        self.later = {
            (c, b): np.concatenate([g for (k, a), g in self.groups.items() if k == c and a > b])
            if any(k == c and a > b for k, a in self.groups)
            else self.groups[c, b]
            for c, b in self.groups
        }

    def __getitem__(self, i: int) -> Any:
        key = int(self.labels[i]), int(self.bucket[i])
        rng = np.random.default_rng(int(torch.randint(2**31, (1,))))
        positive, negative = rng.choice(self.later[key]), rng.choice(self.groups[key])
        views = [self.transform(self.images[k]) for k in (i, positive, negative)]
        return (*views, int(self.labels[i]))


def make_optimizer(network: nn.Module, s: Settings) -> torch.optim.Optimizer:
    if s.optimizer == "sgd":
        return torch.optim.SGD(
            network.parameters(), lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay
        )
    return torch.optim.Adam(network.parameters(), lr=s.lr, weight_decay=s.weight_decay)


def weighted_loss(logits: Tensor, y: Tensor, beta: float) -> Tensor:
    ce = F.cross_entropy(logits.float(), y, reduction="none")
    return ((-ce).exp().detach() ** (1 / beta) * ce).mean()


def loader(data: Any, s: Settings, sampler: Any = None, shuffle: bool = False) -> Any:
    return DataLoader(
        data,
        batch_size=s.batch,
        sampler=sampler,
        shuffle=shuffle,
        num_workers=s.workers,
        pin_memory=torch.cuda.is_available(),
        persistent_workers=s.workers > 0,
    )


class Ranker:
    """The plain ranking loop; `train` and `select` are one full pass each."""

    def __init__(
        self, network: nn.Module, images: Sequence[Any], labels: Any, s: Settings, device: Any
    ) -> None:
        use_tf32()
        self.network, self.s, self.device = network.to(device), s, device
        self.optimizer = make_optimizer(self.network, s)
        self.v = torch.ones(len(labels), dtype=torch.double)
        self.sampler = WeightedRandomSampler(self.v, len(labels))  # type: ignore[arg-type]
        self.sampler.weights = self.v
        self.to_train = loader(Pictures(images, labels, train=True), s, self.sampler)
        self.to_select = loader(Pictures(images, labels, train=False), s)

    def train(self) -> float:
        self.network.train()
        total = 0.0
        for images, labels, _ in self.to_train:
            x = images.to(self.device, non_blocking=True)
            y = labels.to(self.device, non_blocking=True)
            loss = weighted_loss(self.network(x), y, self.s.beta)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total

    @torch.no_grad()
    def select(self) -> Tensor:
        self.network.eval()
        p = torch.zeros(len(self.v))
        for images, labels, i in self.to_select:
            x = images.to(self.device, non_blocking=True)
            y = labels.to(self.device, non_blocking=True)
            p[i] = self.network(x).softmax(1).gather(1, y[:, None]).squeeze(1).cpu()
        return p

    def rank(self) -> tuple[Any, Any]:
        """Bucket and score of every sample."""
        bucket = torch.full((len(self.v),), -1, dtype=torch.long)
        score = torch.zeros(len(self.v))
        for t in range(self.s.epochs):
            self.train()
            p = self.select()
            left = bucket < 0
            bucket[left & (p > self.s.p_critical)] = t
            score[left] = p[left] ** (1 / self.s.beta)
            self.v[bucket >= 0] = 0
            if bool((bucket >= 0).all()):
                break
        bucket[bucket < 0] = self.s.epochs
        return bucket.numpy(), score.double().numpy()


class Debiaser:
    """The plain contrastive epoch: one pass per view, the partners' without gradients."""

    def __init__(
        self,
        body: nn.Module,
        head: nn.Module,
        images: Sequence[Any],
        labels: Any,
        bucket: Any,
        s: Settings,
        device: Any,
    ) -> None:
        use_tf32()
        self.body, self.head, self.s, self.device = body.to(device), head.to(device), s, device
        self.optimizer = make_optimizer(nn.ModuleList([body, head]), s)
        self.loader = loader(Triples(images, labels, bucket), s, shuffle=True)

    def epoch(self) -> float:
        self.body.train()
        total = 0.0
        for batch in self.loader:
            x, pos, neg, y = (t.to(self.device, non_blocking=True) for t in batch)
            z = F.normalize(self.body(x), dim=1)
            with torch.no_grad():
                z_pos = F.normalize(self.body(pos), dim=1)
                z_neg = F.normalize(self.body(neg), dim=1)
            to_pos = (z * z_pos).sum(1) / self.s.tau
            to_neg = (z * z_neg).sum(1) / self.s.tau
            contrast = (torch.logsumexp(torch.cat([to_pos, to_neg]), 0) - to_pos).mean()
            loss = contrast + self.s.gamma * F.cross_entropy(self.head(self.body(pos)), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total


class Eager:
    """Images on the device, bf16 autocast, channels_last, plain eager PyTorch."""

    def __init__(
        self, network: nn.Module, pixels: Tensor, labels: Tensor, s: Settings, device: Any
    ) -> None:
        self.network = network.to(device, memory_format=torch.channels_last)
        self.pixels, self.labels, self.s, self.device = pixels, labels, s, device
        self.optimizer = make_optimizer(self.network, s)
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=device).view(1, 3, 1, 1) * 255

    def _batch(self, index: Tensor) -> Tensor:
        x = (self.pixels[index].permute(0, 3, 1, 2).float() - self.mean) / self.std
        return x.contiguous(memory_format=torch.channels_last)

    def _autocast(self) -> Any:
        # Few CPUs compute in bf16; the others are ten times as slow with it.
        on = self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=on)

    def train(self, steps: int, loss_of: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        self.network.train()
        order = torch.randint(len(self.labels), (steps, self.s.batch), device=self.device)
        for index in order:
            x = self._batch(index)
            flip = torch.rand(len(index), 1, 1, 1, device=self.device) < 0.5
            x = torch.where(flip, x.flip(3), x)
            with self._autocast():
                logits = self.network(x)
            y = self.labels[index]
            loss = loss_of(logits, y) if loss_of else weighted_loss(logits, y, self.s.beta)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def select(self, steps: int) -> Tensor:
        self.network.eval()
        out = []
        for start in range(0, steps * self.s.batch, self.s.batch):
            index = torch.arange(start, start + self.s.batch, device=self.device)
            index = index % len(self.labels)
            with self._autocast():
                logits = self.network(self._batch(index))
            p = logits.float().softmax(1).gather(1, self.labels[index][:, None])
            out.append(p.squeeze(1))
        return torch.cat(out)
