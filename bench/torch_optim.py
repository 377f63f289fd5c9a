"""PyTorch's optimizers, for `adamod optim bench`: arguments are the number of threads and the device. Requests and answers
are lines of JSON, one answer to each request. AdaMod is the flavour published of docs/optimizers.md, one tensor after the
other, as a torch.optim.Optimizer would write it.

SPDX-License-Identifier: MIT
"""
import json, math, sys, time
def say(**answer):
    print(json.dumps(answer), flush=True)
try:
    import torch
except Exception as error:
    say(error=str(error).replace(chr(34), chr(39)))
    sys.exit(1)
device = sys.argv[2]
if int(sys.argv[1]): torch.set_num_threads(int(sys.argv[1]))
if device != 'cpu' and not torch.cuda.is_available():
    say(error='its torch finds no GPU')
    sys.exit(1)
if device != 'cpu': torch.cuda.set_device(torch.device(device).index or 0)
EMBEDDING = 1 << 14  # a dimension that is larger is a vocabulary's

def adamw(params):
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0, **{kind: True})

def parameter(shape):
    p = torch.nn.Parameter(torch.empty(shape, device=device).uniform_(-1, 1))
    p.grad = torch.empty(shape, device=device).uniform_(-1, 1)
    return p

def has_fused():
    try:
        adamw([parameter([8])]).step()
        return True
    except Exception:
        return False

class AdaMod:
    def __init__(self, params):
        self.t = 0
        self.items = [(p, torch.zeros_like(p), torch.zeros_like(p), torch.zeros_like(p)) for p in params]
    @torch.no_grad()
    def step(self, lr=1e-3, beta1=0.9, beta2=0.999, beta3=0.999, eps=1e-8):
        self.t += 1
        for p, m, v, s in self.items:
            m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
            v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
            denominator = v.sqrt().add_(eps)
            eta = lr * math.sqrt(1 - beta2**self.t) / (1 - beta1**self.t) / denominator
            s.mul_(beta3).add_(eta, alpha=1 - beta3)
            p.sub_(torch.min(eta, s).mul_(m))

class Muon:
    def __init__(self, params):
        flat = [p if p.ndim < 3 else torch.nn.Parameter(p.data.flatten(1)) for p in params]
        for p, q in zip(params, flat): q.grad = p.grad.reshape(q.shape)
        hidden = [p for p in flat if p.ndim == 2 and max(p.shape) <= EMBEDDING]
        rest = [p for p in flat if p.ndim < 2 or max(p.shape) > EMBEDDING]
        self.both = [torch.optim.Muon(hidden, lr=1e-3, weight_decay=0)] if hidden else []
        if rest: self.both.append(adamw(rest))
    def step(self):
        for optimizer in self.both: optimizer.step()

def adafactor(params):
    return torch.optim.Adafactor(params, foreach=device != 'cpu')

kind = 'fused'
fused = has_fused()
kind = 'fused' if fused else 'foreach'
say(version=torch.__version__, python=sys.executable, fused=fused, muon=hasattr(torch.optim, 'Muon'),
    adafactor=hasattr(torch.optim, 'Adafactor'))
sets = {'probe': [AdaMod([parameter([65536]) for _ in range(20)])]}
for line in sys.stdin:
    try:
        ask = json.loads(line)
        if ask['do'] == 'prepare':
            make = {'adamw': adamw, 'adamod': AdaMod, 'muon': Muon, 'adafactor': adafactor}
            sets = {who: [make[who]([parameter(shape) for shape in ask['shapes']]) for _ in range(ask['sets'])]
                    for who in ask['who']}
            say(ok=True)
        elif ask['do'] == 'drop':
            sets = {}
            if device != 'cpu': torch.cuda.empty_cache()
            say(ok=True)
        elif device == 'cpu':
            start = time.perf_counter()
            for optimizer in sets[ask.get('who', 'probe')]:
                optimizer.step()
            say(seconds=time.perf_counter() - start)
        else:
            optimizer, times = sets[ask['who']][0], 5
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            optimizer.step()
            torch.cuda.synchronize()
            begin.record()
            for _ in range(times): optimizer.step()
            end.record()
            torch.cuda.synchronize()
            say(seconds=begin.elapsed_time(end) / 1e3 / times)
    except Exception as error:
        say(error=str(error).replace(chr(34), chr(39))[:200])
