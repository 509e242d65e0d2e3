"""Training as other people's libraries do it: their trainers, loaders and augmentations, with
synthetic data, since gpu-check has no network. Nothing in it knows of trimtab.
Prints one line a step, as train.py does. Ends when killed.

    hf         transformers' Trainer: a small BERT, whose text is tokenized by four loaders
    lightning  Lightning's Trainer: ResNet-18, whose JPEGs are decoded and augmented by four loaders
    timm       timm's own loader, RandAugment and EfficientNet, as its training script puts them together
    pyg        PyTorch Geometric: a graph network, whose batches are put together by four loaders
    jax        JAX and Optax: a small network under jit, whose batches one thread augments
"""

import glob
import io
import os
import sys
import time

import numpy as np

WORKERS = 4


class Steps:
    """Says each step."""

    def __init__(self):
        self.n, self.last = 0, time.clock_gettime(time.CLOCK_MONOTONIC)

    def __call__(self):
        t = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.n += 1
        print(f"step={self.n} t={t:.6f} dt={t - self.last:.6f}", flush=True)
        self.last = t


def hf():
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import (BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast, Trainer,
                              TrainerCallback, TrainingArguments)

    files = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:60]
    text = "\n".join(open(f, errors="replace").read() for f in files)
    chunks = [text[i:i + 1500] for i in range(0, len(text) - 1500, 1500)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made = Tokenizer(models.BPE(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(chunks[:200], trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                        sep_token="[SEP]", mask_token="[MASK]")

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 1_000_000

        def __getitem__(self, i):
            return tokenizer(chunks[i % len(chunks)], truncation=True, max_length=256, return_special_tokens_mask=True)

    say = Steps()

    class Say(TrainerCallback):
        def on_step_end(self, args, state, control, **more):
            say()

    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                                       intermediate_size=1024))
    args = TrainingArguments(output_dir="/dev/shm/out", per_device_train_batch_size=64, max_steps=1_000_000, save_strategy="no",
                             report_to=[], dataloader_num_workers=WORKERS, bf16=True, logging_steps=100, disable_tqdm=True)
    Trainer(model=model, args=args, train_dataset=Texts(), data_collator=DataCollatorForLanguageModeling(tokenizer=tokenizer),
            callbacks=[Say()]).train()


def jpegs(n=128, side=320):
    from PIL import Image

    random = np.random.default_rng(1)
    out = []
    for _ in range(n):
        small = Image.fromarray(random.integers(0, 255, (20, 20, 3), dtype=np.uint8))
        packed = io.BytesIO()
        small.resize((side, side), Image.BICUBIC).save(packed, "JPEG", quality=90)
        out.append(packed.getvalue())
    return out


class Images:
    """A dataset of JPEGs in memory. timm's loader sets its transform."""

    def __init__(self, transform=None):
        self.jpegs, self.transform = jpegs(), transform

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        from PIL import Image

        return self.transform(Image.open(io.BytesIO(self.jpegs[i % len(self.jpegs)])).convert("RGB")), i % 100


def lightning():
    import torch
    import torchvision
    from torchvision import transforms

    import lightning as L

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torchvision.models.resnet18(num_classes=100)

        def training_step(self, batch, i):
            images, labels = batch
            return torch.nn.functional.cross_entropy(self.net(images), labels)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    say = Steps()

    class Say(L.Callback):
        def on_train_batch_end(self, *anything):
            say()

    augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    data = torch.utils.data.DataLoader(Images(augment), batch_size=64, shuffle=True, num_workers=WORKERS, pin_memory=True,
                                       persistent_workers=True)
    L.Trainer(accelerator="gpu", devices=1, max_epochs=-1, precision="16-mixed", logger=False, enable_checkpointing=False,
              enable_progress_bar=False, enable_model_summary=False, callbacks=[Say()]).fit(Net(), data)


def timm():
    import timm
    import timm.data
    import timm.loss
    import timm.optim
    import torch

    model = timm.create_model("efficientnet_b0", num_classes=100).cuda().to(memory_format=torch.channels_last)
    data = timm.data.create_loader(Images(), input_size=(3, 224, 224), batch_size=64, is_training=True,
                                   auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25, num_workers=WORKERS, persistent_workers=True)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-4)
    loss_of, scaler, say = timm.loss.LabelSmoothingCrossEntropy(0.1), torch.amp.GradScaler("cuda"), Steps()
    while True:
        for images, labels in data:
            images = images.to(memory_format=torch.channels_last)
            with torch.amp.autocast("cuda"):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            say()


def pyg():
    import torch
    import torch.nn.functional as F
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GCNConv, global_mean_pool

    random = np.random.default_rng(1)

    class Graphs(torch.utils.data.Dataset):
        def __len__(self):
            return 1_000_000

        def __getitem__(self, i):
            nodes, edges = 60, 400
            pairs = torch.from_numpy(random.integers(0, nodes, (2, edges)))
            near = torch.zeros(nodes, nodes).index_put_((pairs[0], pairs[1]), torch.ones(edges))
            x = torch.linalg.matrix_power(near / 7, 4)[:, :32]  # where random walks of four steps end
            return Data(x=x, edge_index=pairs, y=torch.tensor([i % 10]))

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.out = GCNConv(32, 256), GCNConv(256, 256), torch.nn.Linear(256, 10)

        def forward(self, batch):
            x = self.first(batch.x, batch.edge_index).relu()
            x = self.second(x, batch.edge_index).relu()
            return self.out(global_mean_pool(x, batch.batch))

    model, say = Net().cuda(), Steps()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        for batch in DataLoader(Graphs(), batch_size=128, shuffle=True, num_workers=WORKERS, pin_memory=True):
            batch = batch.to("cuda", non_blocking=True)
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
            say()


def jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp
    import optax

    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    widths = [32 * 32 * 3, 2048, 2048, 10]
    params = [(jax.random.normal(k, (a, b)) * a**-0.5, jnp.zeros(b)) for k, a, b in zip(keys, widths, widths[1:])]
    optimizer = optax.adamw(1e-4)
    state = optimizer.init(params)

    def loss_of(params, x, y):
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            if i < len(params) - 1:
                x = jax.nn.relu(x)
        return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()

    @jax.jit
    def step(params, state, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    random, say = np.random.default_rng(1), Steps()
    images, labels = random.integers(0, 255, (5000, 32, 32, 3), dtype=np.uint8), random.integers(0, 10, 5000)
    while True:
        picked = random.integers(0, len(images), 512)
        batch = np.empty((512, 32, 32, 3), dtype=np.float32)
        for i, n in enumerate(picked):
            image = np.pad(images[n], ((4, 4), (4, 4), (0, 0)))
            y, x = random.integers(0, 8, 2)
            image = image[y:y + 32, x:x + 32]
            batch[i] = (image[:, ::-1] if random.random() < 0.5 else image) / 255
        params, state, loss = step(params, state, batch.reshape(512, -1), labels[picked])
        say()
        if say.n % 50 == 0:
            float(loss)


if __name__ == "__main__":
    {"hf": hf, "lightning": lightning, "timm": timm, "pyg": pyg, "jax": jax}[sys.argv[1]]()
