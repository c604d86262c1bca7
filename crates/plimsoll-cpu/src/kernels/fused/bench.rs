use super::Fused;
use crate::pool::Pool;
use crate::routine::{Call, Routine};
use crate::simd::Isa;
use plimsoll_graph::op::*;
use plimsoll_graph::program::*;
use plimsoll_graph::{DType, Shape};
use std::time::Instant;

struct Mem(Vec<u8>, usize);
impl Mem {
    fn new(bytes: usize) -> Mem {
        let m = vec![0u8; bytes + 4096];
        let o = m.as_ptr().align_offset(64);
        Mem(m, o)
    }
    fn p(&self) -> *mut u8 { unsafe { self.0.as_ptr().add(self.1).cast_mut() } }
    fn f32s(&mut self) -> &mut [f32] { unsafe { std::slice::from_raw_parts_mut(self.p().cast(), (self.0.len() - 4096) / 4) } }
}
fn filled(n: usize) -> Mem {
    let mut m = Mem::new(n * 4);
    let mut s = 1u32;
    for x in m.f32s() { s = s.wrapping_mul(1664525).wrapping_add(1013904223); *x = (s >> 8) as f32 / 8388608.0 * 2.0 - 1.0; }
    m
}
fn time(mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    let t0 = Instant::now();
    f();
    while t0.elapsed().as_secs_f64() < 1.5 {
        let t = Instant::now();
        f();
        best = best.min(t.elapsed().as_secs_f64());
    }
    best
}
fn op(b: u32, dims: &[usize], dtype: DType) -> Operand { Operand { buffer: BufferId(b), dtype, view: View::dense(Shape::new(dims).unwrap()) } }
fn ins(scalar: Scalar, dtype: DType, level: Level) -> Instruction { Instruction { scalar, dtype, level } }
const E: Level = Level::Element;
const R: Level = Level::Row;
fn run(body: &Loop, reads: &[Operand], writes: &[Operand], ip: &[(usize, usize)], r: &[*const u8], w: &[*mut u8], threads: usize, isa: Isa) -> f64 {
    let f = Fused::new(body, reads, writes, ip, isa);
    if std::env::var("SHOW").is_ok() { eprintln!("tile {:?} of {:?} chunk {} single {} steps {} mem {}", f.geometry.tile, f.geometry.extents, f.geometry.chunk, f.geometry.single, f.steps.per_tile(), f.memory()); }
    let pool = Pool::new(threads).unwrap();
    let ws = Mem::new(f.workspace(threads));
    let call = Call { reads: r, writes: w, workspace: ws.p(), pool: &pool };
    time(|| unsafe { f.run(&call) })
}
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hand_relu(x: &[f32], b: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(b.len()).zip(y.chunks_exact_mut(b.len())) {
        for i in 0..b.len() { let s = x[i] + b[i]; y[i] = if s <= 0.0 { 0.0 } else { s }; }
    }
}
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hand_adam(p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32], lr: f32) {
    for i in 0..p.len() {
        m[i] = m[i] * 0.9 + g[i] * 0.1;
        v[i] = v[i] * 0.999 + g[i] * g[i] * 0.001;
        p[i] -= lr * m[i] / (v[i].sqrt() + 1e-8);
    }
}
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hand_softmax(x: &[f32], y: &mut [f32], n: usize) {
    for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
        let mut l = [f32::MIN; 16];
        for c in x.chunks_exact(16) { for i in 0..16 { l[i] = if c[i] > l[i] { c[i] } else { l[i] }; } }
        let mut m = f32::MIN;
        for i in 0..16 { if l[i] > m { m = l[i] } }
        let mut l = [0f32; 16];
        for (c, y) in x.chunks_exact(16).zip(y.chunks_exact_mut(16)) { for i in 0..16 { let e = crate::math::single::exp(c[i] - m); y[i] = e; l[i] += e; } }
        let s: f32 = l.iter().sum();
        for y in y { *y /= s; }
    }
}
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn hand_gelu(x: &[f32], y: &mut [f32]) { for i in 0..x.len() { y[i] = crate::math::single::gelu(x[i]); } }

#[test]
fn bench() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let want = |n: &str| only.is_empty() || n.contains(&only);
    let f32 = DType::F32;
    if want("relu") { for (rows, cols) in [(4096, 1024), (64, 1024), (4096, 1000), (40000, 100)] {
        let n = rows * cols;
        let (mut x, mut b, mut y) = (filled(n), filled(cols), Mem::new(n * 4));
        let mut bias = op(1, &[rows, cols], f32);
        bias.view.strides[0] = 0;
        let body = Loop { domain: Shape::new(&[rows, cols]).unwrap(), row_axes: 0, instructions: vec![
            ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Load { read: 1 }, f32, E),
            ins(Scalar::Binary(Binary::Add, 0, 1), f32, E), ins(Scalar::Unary(Unary::Relu, 2), f32, E)], stores: vec![3] };
        let (rd, wr) = ([op(0, &[rows, cols], f32), bias], [op(2, &[rows, cols], f32)]);
        let hand = time(|| unsafe { hand_relu(x.f32s(), b.f32s(), y.f32s()) });
        let t1 = run(&body, &rd, &wr, &[], &[x.p(), b.p()], &[y.p()], 1, Isa::Avx512);
        let t2 = run(&body, &rd, &wr, &[], &[x.p(), b.p()], &[y.p()], 2, Isa::Avx512);
        let a2 = run(&body, &rd, &wr, &[], &[x.p(), b.p()], &[y.p()], 1, Isa::Avx2);
        let p = run(&body, &rd, &wr, &[], &[x.p(), b.p()], &[y.p()], 1, Isa::Portable);
        let ip = run(&body, &rd, &wr, &[(0, 0)], &[x.p(), b.p()], &[x.p()], 1, Isa::Avx512);
        eprintln!("relu(x+b) {rows}x{cols}: hand {:.3} ms ({:.1} GB/s), fused {:.3} ({:.2}x), 2t {:.3}, avx2 {:.3}, portable {:.3} in place {:.3}", hand * 1e3, n as f64 * 8e-9 / hand, t1 * 1e3, t1 / hand, t2 * 1e3, a2 * 1e3, p * 1e3, ip * 1e3);
    }}
    if want("adam") { for n in [16 << 20, 1 << 14] {
        let (mut p, mut m, mut v, mut g) = (filled(n), filled(n), filled(n), filled(n));
        v.f32s().iter_mut().for_each(|v| *v = v.abs());
        let mut lr = filled(1);
        lr.f32s()[0] = 1e-6;
        let mut lrop = op(4, &[n], f32);
        lrop.view.strides[0] = 0;
        let c = |x| ins(Scalar::Constant(x), f32, E);
        let bin = |o, a, b| ins(Scalar::Binary(o, a, b), f32, E);
        let body = Loop { domain: Shape::new(&[n]).unwrap(), row_axes: 0, instructions: vec![
            ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Load { read: 1 }, f32, E), ins(Scalar::Load { read: 2 }, f32, E), ins(Scalar::Load { read: 3 }, f32, E), ins(Scalar::Load { read: 4 }, f32, E),
            c(0.9), c(0.1), c(0.999), c(0.001), c(1e-8),
            bin(Binary::Mul, 1, 5), bin(Binary::Mul, 3, 6), bin(Binary::Add, 10, 11),
            bin(Binary::Mul, 2, 7), bin(Binary::Mul, 3, 3), bin(Binary::Mul, 14, 8), bin(Binary::Add, 13, 15),
            ins(Scalar::Unary(Unary::Sqrt, 16), f32, E), bin(Binary::Add, 17, 9), bin(Binary::Mul, 12, 4), bin(Binary::Div, 19, 18), bin(Binary::Sub, 0, 20)], stores: vec![21, 12, 16] };
        let d = |b| op(b, &[n], f32);
        let (rd, wr) = ([d(0), d(1), d(2), d(3), lrop], [d(0), d(1), d(2)]);
        let hand = time(|| unsafe { hand_adam(p.f32s(), m.f32s(), v.f32s(), g.f32s(), 1e-6) });
        let r = [p.p().cast_const(), m.p(), v.p(), g.p(), lr.p()];
        let w = [p.p(), m.p(), v.p()];
        let t1 = run(&body, &rd, &wr, &[], &r, &w, 1, Isa::Avx512);
        let t2 = run(&body, &rd, &wr, &[], &r, &w, 2, Isa::Avx512);
        eprintln!("adam {n}: hand {:.3} ms ({:.1} GB/s), fused {:.3} ({:.2}x), 2t {:.3}", hand * 1e3, n as f64 * 28e-9 / hand, t1 * 1e3, t1 / hand, t2 * 1e3);
    }}
    if want("unary") { let n = 1 << 15;
        let (mut x, mut y) = (filled(n), Mem::new(n * 4));
        x.f32s().iter_mut().for_each(|x| *x *= 3.0);
        let hand = time(|| unsafe { hand_gelu(x.f32s(), y.f32s()) });
        eprintln!("gelu hand {:.2} Gelem/s", n as f64 / hand * 1e-9);
        for f in [Unary::Relu, Unary::Exp, Unary::Log, Unary::Tanh, Unary::Sigmoid, Unary::Erf, Unary::Gelu, Unary::GeluSlope, Unary::Softplus, Unary::Sin, Unary::Sqrt, Unary::Rsqrt, Unary::Floor] {
            let body = Loop { domain: Shape::new(&[n]).unwrap(), row_axes: 0, instructions: vec![ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Unary(f, 0), f32, E)], stores: vec![1] };
            let (rd, wr) = ([op(0, &[n], f32)], [op(1, &[n], f32)]);
            let t: Vec<f64> = Isa::ALL.iter().rev().map(|&isa| n as f64 * 1e-9 / run(&body, &rd, &wr, &[], &[x.p()], &[y.p()], 1, isa)).collect();
            eprintln!("{f:?}: {t:.2?} Gelem/s");
        }
        let body = Loop { domain: Shape::new(&[n]).unwrap(), row_axes: 0, instructions: vec![ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Binary(Binary::Pow, 0, 1), f32, E)], stores: vec![2] };
        eprintln!("pow {:.2}", n as f64 * 1e-9 / run(&body, &[op(0, &[n], f32)], &[op(1, &[n], f32)], &[], &[x.p()], &[y.p()], 1, Isa::Avx512));
        let mut st = Mem::new(64); st.f32s()[0] = 1.0;
        for (dt, dist) in [(f32, Distribution::Uniform), (f32, Distribution::Normal), (DType::BF16, Distribution::Uniform)] {
            let body = Loop { domain: Shape::new(&[n]).unwrap(), row_axes: 0, instructions: vec![ins(Scalar::Random { distribution: dist, state: 0, stream: 7 }, dt, E)], stores: vec![0] };
            eprintln!("random {dist:?} {dt} {:.3} Gelem/s", n as f64 * 1e-9 / run(&body, &[op(0, &[2], DType::I64)], &[op(1, &[n], dt)], &[], &[st.p()], &[y.p()], 1, Isa::Avx512));
        }
        let xb = Mem::new(n * 2);
        for dt in [DType::BF16, DType::F16] {
            let body = Loop { domain: Shape::new(&[n]).unwrap(), row_axes: 0, instructions: vec![ins(Scalar::Load { read: 0 }, dt, E), ins(Scalar::Binary(Binary::Add, 0, 0), dt, E), ins(Scalar::Unary(Unary::Relu, 1), dt, E)], stores: vec![2] };
            let t: Vec<f64> = Isa::ALL.iter().rev().map(|&isa| n as f64 * 1e-9 / run(&body, &[op(0, &[n], dt)], &[op(1, &[n], dt)], &[], &[xb.p()], &[y.p()], 1, isa)).collect();
            eprintln!("relu(x+x) {dt} {t:.2?} Gelem/s");
        }
    }
    if want("softmax") { for (rows, cols) in [(8192, 512), (65536, 10), (16384, 64), (512, 50257)] {
        let n = rows * cols;
        let (mut x, mut y) = (filled(n), Mem::new(n * 4));
        let body = Loop { domain: Shape::new(&[rows, cols]).unwrap(), row_axes: 1, instructions: vec![
            ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Reduce(Reduction::Max, 0), f32, R), ins(Scalar::Binary(Binary::Sub, 0, 1), f32, E),
            ins(Scalar::Unary(Unary::Exp, 2), f32, E), ins(Scalar::Reduce(Reduction::Sum, 3), f32, R), ins(Scalar::Binary(Binary::Div, 3, 4), f32, E)], stores: vec![5] };
        let (rd, wr) = ([op(0, &[rows, cols], f32)], [op(1, &[rows, cols], f32)]);
        let hand = time(|| unsafe { hand_softmax(x.f32s(), y.f32s(), cols) });
        let t1 = run(&body, &rd, &wr, &[], &[x.p()], &[y.p()], 1, Isa::Avx512);
        let t2 = run(&body, &rd, &wr, &[], &[x.p()], &[y.p()], 2, Isa::Avx512);
        eprintln!("softmax {rows}x{cols}: hand {:.3} ms ({:.2} Ge/s), fused {:.3} ({:.2}x) {:.2} Ge/s, 2t {:.3}", hand * 1e3, n as f64 * 1e-9 / hand, t1 * 1e3, t1 / hand, n as f64 * 1e-9 / t1, t2 * 1e3);
    }}
    if want("transpose") { for n in [4096, 4000, 256] {
        let (x, y) = (filled(n * n), Mem::new(n * n * 4));
        let mut t = op(0, &[n, n], f32);
        t.view.strides.swap(0, 1);
        let body = Loop { domain: Shape::new(&[n, n]).unwrap(), row_axes: 0, instructions: vec![ins(Scalar::Load { read: 0 }, f32, E), ins(Scalar::Unary(Unary::Relu, 0), f32, E)], stores: vec![1] };
        let t1 = run(&body, &[t], &[op(1, &[n, n], f32)], &[], &[x.p()], &[y.p()], 1, Isa::Avx512);
        eprintln!("transpose {n}: {:.3} ms {:.2} GB/s", t1 * 1e3, (n * n) as f64 * 8e-9 / t1);
    }}
    if want("reduce") {
        use crate::kernels::reduce;
        use plimsoll_graph::Axes;
        for (dims, axes) in [(vec![16384, 1024], vec![0]), (vec![16384, 1024], vec![1]), (vec![16 << 20], vec![0]), (vec![1 << 20, 16], vec![0]), (vec![1 << 20, 3], vec![0]), (vec![64, 256, 1024], vec![0, 2]), (vec![1 << 20, 10], vec![1])] {
            let n: usize = dims.iter().product();
            let (x, y) = (filled(n), Mem::new(n * 4));
            let kept: Vec<usize> = (0..dims.len()).filter(|a| !axes.contains(a)).map(|a| dims[a]).collect();
            let t: Vec<f64> = [1, 2].iter().map(|&threads| {
                let f = reduce::prepare(Reduction::Sum, Axes::new(&axes, dims.len()).unwrap(), &[op(0, &dims, f32)], &[op(1, &kept, f32)]);
                let pool = Pool::new(threads).unwrap();
                let ws = Mem::new(f.workspace(threads));
                let (r, w) = ([x.p().cast_const()], [y.p()]);
                let call = Call { reads: &r, writes: &w, workspace: ws.p(), pool: &pool };
                time(|| unsafe { f.run(&call) })
            }).collect();
            eprintln!("sum {dims:?} over {axes:?}: {:.3} ms {:.1} GB/s, 2t {:.3} ms", t[0] * 1e3, n as f64 * 4e-9 / t[0], t[1] * 1e3);
        }
    }
}
#[test]
fn addresses() {
    use super::functions;
    use crate::kernels::number::Kind;
    eprintln!("base {:p}", addresses as fn());
    for isa in Isa::ALL { for f in [Unary::Gelu, Unary::Erf, Unary::Exp] { eprintln!("{isa:?} {f:?} {:p}", functions::unary(f, Kind::F32, isa).unwrap()); } }
}
