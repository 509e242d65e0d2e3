"""torchvision's transforms in a worker of PyTorch's DataLoader, and a network of it; a step is a batch."""

import numpy
import PIL.Image
import torch
import torchvision

import zoolog


class Noise(torch.utils.data.Dataset):
    """Images that are decoded and augmented for each use, as from a folder of photographs."""

    def __init__(self):
        self.images = [PIL.Image.fromarray(numpy.random.default_rng(i).integers(0, 255, (512, 512, 3), dtype=numpy.uint8)) for i in range(16)]
        transforms = torchvision.transforms
        self.transform = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.2, 0.2), transforms.ToTensor()])

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        return torch.nn.functional.avg_pool2d(self.transform(self.images[i % 16]), 8), i % 10


torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
model(torch.zeros(1, 3, 28, 28))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = zoolog.Log()
for images, labels in torch.utils.data.DataLoader(Noise(), batch_size=8, num_workers=1):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.step()
