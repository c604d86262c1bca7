//! What training leaves behind: files that are written from where the weights are.

use plimsoll::layers::{BatchNorm, Dense, Flatten, Sequential};
use plimsoll::loss::Loss;
use plimsoll::{Optimizer, RunFolder, Trained, Trainer, data};
use safetensors::SafeTensors;

#[test]
fn weights_are_saved_from_where_they_are_as_they_would_be_from_a_copy() {
    let data = data::Dataset::new(data::digits()).unwrap().split(0.8, 1).unwrap();
    let model = Sequential::new().then(Flatten).then(BatchNorm::new()).then(Dense::new(10));
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).steps(3);
    let mut training = trainer.compile(&data.train, None).unwrap();
    let report = training.fit(&mut ()).unwrap();
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    training.save(&report, &mut RunFolder::open(places[0].path()).unwrap()).unwrap();
    let weights = training.weights().unwrap();
    let copy = Trained { report, weights: weights.clone(), memory: training.memory_trace() };
    copy.save(places[1].path()).unwrap();
    for file in ["weights.safetensors", "run.json", "memory.jsonl"] {
        let read = |place: usize| std::fs::read(places[place].path().join(file)).unwrap();
        assert!(read(0) == read(1), "{file}");
    }
    let file = std::fs::read(places[0].path().join("weights.safetensors")).unwrap();
    let saved = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(saved.len(), weights.len());
    for (name, weight) in weights {
        let tensor = saved.tensor(&name).unwrap();
        let bytes: Vec<u8> = weight.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!((tensor.shape(), tensor.data()), (&weight.shape[..], &bytes[..]), "{name}");
    }
}
