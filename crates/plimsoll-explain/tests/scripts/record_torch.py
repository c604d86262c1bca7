"""Records memory snapshots of small PyTorch programs on a GPU, one scenario a process, for tests.

    python3 record_torch.py SCENARIO FOLDER

Settings such as expandable_segments:True come from PYTORCH_CUDA_ALLOC_CONF.
"""
import os, sys, random, torch, torch.nn as nn
name, out = sys.argv[1], sys.argv[2]
torch.manual_seed(0); random.seed(0)
entries = 200000
def record(): torch.cuda.memory._record_memory_history(max_entries=entries)
def save(error=None):
    torch.cuda.memory._dump_snapshot(f"{out}/torch-{name}.pickle")
    s = torch.cuda.memory_stats()
    with open(f"{out}/torch-{name}.stats.txt", "w") as f:
        for k in ("reserved_bytes.all.current","reserved_bytes.all.peak","allocated_bytes.all.current","allocated_bytes.all.peak","requested_bytes.all.peak","num_alloc_retries","num_ooms","num_device_alloc","num_device_free"): f.write(f"{k} {s.get(k)}\n")
    if error is not None: open(f"{out}/torch-{name}.oom.txt","w").write(str(error))
def gpt(width=256, layers=2, vocab=8192, heads=4):
    layer = nn.TransformerEncoderLayer(width, heads, 4*width, batch_first=True, dropout=0.0)
    return nn.Sequential(nn.Embedding(vocab, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, vocab)).cuda()
def loss_of(model, x):
    logits = model(x)
    return nn.functional.cross_entropy(logits.flatten(0,1), x.flatten())
def train(steps, batch=8, low=32, high=512, limit=None, keep=None, vocab=8192):
    model = gpt(vocab=vocab); opt = torch.optim.Adam(model.parameters())
    for step in range(steps):
        x = torch.randint(0, vocab, (batch, random.randint(low, high)), device="cuda")
        loss = loss_of(model, x); loss.backward(); opt.step(); opt.zero_grad()
        if keep is not None: keep.append(loss_of(model, x))
def cap(gib): torch.cuda.set_per_process_memory_fraction(gib*2**30/torch.cuda.get_device_properties(0).total_memory)
record()
try:
    if name.startswith("varlen"):            # growing cache, whole history
        if name.endswith("capped"): cap(1.15)
        train(60)
        save()
    elif name == "steady":
        train(40, low=128, high=128); save()
    elif name == "toobig":
        cap(4); train(3); y = torch.empty(6*2**30//4, device="cuda")
    elif name == "leak":
        cap(6); train(400, low=64, high=64, keep=[])
    elif name == "leakslow":                 # a list of detached results grows a little each step, never out of memory
        kept=[]; model=gpt(); opt=torch.optim.Adam(model.parameters())
        for step in range(60):
            x=torch.randint(0,8192,(8,64),device="cuda"); logits=model(x)
            loss=nn.functional.cross_entropy(logits.flatten(0,1),x.flatten()); loss.backward(); opt.step(); opt.zero_grad()
            kept.append(logits.detach()[:, -1].clone()); 
        save()
    elif name == "fragoom":                  # every second block is kept: free bytes enough, no hole large enough
        cap(4); big=[torch.empty(random.choice([30,34,38,42,46])*2**20, dtype=torch.uint8, device="cuda") for _ in range(95)]
        small=[]
        for i in range(0,95): 
            if i%2==0: big[i]=None
        for i in range(48): small.append(torch.empty(12*2**20, dtype=torch.uint8, device="cuda"))
        y=torch.empty(600*2**20, dtype=torch.uint8, device="cuda")
    elif name == "transient":                # one step's peak: logits of a large vocabulary, live in three copies
        cap(3.2); train(5, batch=16, low=256, high=256, vocab=65536)
    elif name == "other":
        hold=None
        free,total=torch.cuda.mem_get_info(); 
        train(3)
        ys=[]
        while True: ys.append(torch.empty(4*2**30, dtype=torch.uint8, device="cuda"))
    elif name == "streams":
        s=torch.cuda.Stream(); 
        for i in range(200):
            a=torch.randn(random.randint(1,400)*1024*8, device="cuda")
            with torch.cuda.stream(s):
                s.wait_stream(torch.cuda.current_stream()); b=a*2; a.record_stream(s); c=torch.empty(random.randint(1,60)*2**17, device="cuda")
        torch.cuda.synchronize(); save()
    elif name == "healthy2":
        model=nn.Sequential(nn.Conv2d(3,32,3),nn.ReLU(),nn.MaxPool2d(2),nn.Conv2d(32,64,3),nn.ReLU(),nn.Flatten(),nn.LazyLinear(10)).cuda()
        opt=None
        for i in range(30):
            x=torch.randn(64,3,32,32,device="cuda"); y=torch.randint(0,10,(64,),device="cuda")
            l=nn.functional.cross_entropy(model(x),y)
            opt=opt or torch.optim.SGD(model.parameters(),lr=.01,momentum=.9)
            l.backward(); opt.step(); opt.zero_grad()
        save()
    elif name == "idle":                     # a large evaluation once, a small training loop after: cache stays
        m=gpt()
        with torch.no_grad(): m(torch.randint(0,8192,(256,512),device="cuda"))
        train(20, low=64, high=64); save()
except torch.OutOfMemoryError as e:
    save(e)
