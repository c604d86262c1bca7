"""Records snapshots of PyTorch programs with one fault each: holes, and leaks by step, by epoch and without an optimizer.

    python3 record_torch_faults.py SCENARIO FOLDER
"""
import os, sys, random, torch, torch.nn as nn
name, out = sys.argv[1], sys.argv[2]
torch.manual_seed(0); random.seed(0)
kw = dict(stacks="all", max_entries=20000) if name=="stacksall" else dict(max_entries=3000) if name.endswith("wrapped") else dict(max_entries=100000)
torch.cuda.memory._record_memory_history(**kw)
MB=2**20
def cap(gib): torch.cuda.set_per_process_memory_fraction(gib*2**30/torch.cuda.get_device_properties(0).total_memory)
def save(error=None):
    torch.cuda.memory._dump_snapshot(f"{out}/torch-{name}.pickle")
    if error is not None: open(f"{out}/torch-{name}.oom.txt","w").write(str(error))
def e(mb): return torch.empty(int(mb*MB), dtype=torch.uint8, device="cuda")
def mlp(): return nn.Sequential(nn.Linear(1024,4096),nn.ReLU(),nn.Linear(4096,4096),nn.ReLU(),nn.Linear(4096,10)).cuda()
try:
    if name=="fragoom2":
        cap(3); blocks=[e(random.choice([4,6,8,9])) for _ in range(380)]
        random.shuffle(blocks); keep=blocks[:190]; del blocks
        y=e(900)
    elif name.startswith("evalleak"):   # inference that keeps its outputs, no optimizer, no marks
        m=mlp(); outs=[]
        for i in range(120):
            x=torch.randn(512,1024,device="cuda"); h=m[1](m[0](x)); outs.append(m[4](m[3](m[2](h)))); 
        save()
    elif name=="stacksall":
        m=mlp(); o=torch.optim.SGD(m.parameters(),lr=.1)
        for i in range(12):
            x=torch.randn(256,1024,device="cuda"); l=m(x).square().mean(); l.backward(); o.step(); o.zero_grad()
        save()
    elif name=="graphs":
        m=mlp(); x=torch.randn(256,1024,device="cuda"); m(x); torch.cuda.synchronize()
        g=torch.cuda.CUDAGraph()
        with torch.cuda.graph(g): y=m(x)
        for i in range(10): g.replay(); z=y.clone()
        save()
    elif name=="expleak":
        cap(2); m=mlp(); o=torch.optim.Adam(m.parameters()); losses=[]; total=0
        for i in range(500):
            x=torch.randn(1024,1024,device="cuda"); l=m(x).square().mean(); l.backward(retain_graph=True); o.step(); o.zero_grad(); total=total+l
    elif name=="epochs":     # evaluation every 10 steps keeps its logits: a leak by epoch
        m=mlp(); o=torch.optim.Adam(m.parameters()); kept=[]
        for i in range(100):
            x=torch.randn(512,1024,device="cuda"); l=m(x).square().mean(); l.backward(); o.step(); o.zero_grad()
            if i%10==9:
                with torch.no_grad(): kept.append(m[0](torch.randn(1024,1024,device="cuda")))
        save()
    elif name=="bigweights":
        cap(2); layers=[]
        for i in range(64): layers.append(nn.Linear(4096,4096).cuda())
except torch.OutOfMemoryError as err: save(err)
