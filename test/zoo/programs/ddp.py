"""Two ranks of DistributedDataParallel over gloo, with a convolutional network of torchvision; a step is one of rank 0."""

import torch
import torch.distributed
import torchvision

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torchvision.models.squeezenet1_1(num_classes=10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 10, (8,))
while True:
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if torch.distributed.get_rank() == 0:
        print("step", flush=True)
