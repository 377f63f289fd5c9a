"""CTranslate2 as a contestant of `adamod bench decode`: reads weights and sentences from a file, makes a model of CTranslate2 of
them, and translates when it is told to.

SPDX-License-Identifier: MIT
"""
import json
import signal
import sys
import tempfile
import time

try:
    import ctranslate2
    import numpy
    from ctranslate2 import specs
except Exception as error:
    print(json.dumps({"error": str(error).replace('"', "'")}))
    raise


def read_safetensors(path):
    """Arrays by name, and the metadata with its values as JSON reads them."""
    types = {"F32": numpy.float32, "I32": numpy.int32, "I64": numpy.int64}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = {key: json.loads(value) for key, value in header.pop("__metadata__").items()
                if not key.startswith("crc32")}
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        arrays[name] = numpy.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return arrays, metadata


def sinusoids(positions, d):
    """[sin | cos], as our embedding adds them."""
    half = d // 2
    angles = numpy.arange(positions)[:, None] * numpy.exp(-numpy.log(10000) * numpy.arange(half) / (half - 1))
    return numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], axis=1).astype(numpy.float32)


def convert(weights, meta):
    """A checkpoint's Transformer (docs/checkpoints.md) as CTranslate2 has it: post-norm, ReLU."""
    spec = specs.TransformerSpec.from_config((meta["layers"], meta["layers"]), meta["heads"], pre_norm=False)

    def linear(to, name):
        to.weight = weights[name + ".weight"]
        if name + ".bias" in weights:
            to.bias = weights[name + ".bias"]

    def norm(to, name):
        to.gamma, to.beta = weights[name + ".weight"], weights[name + ".bias"]

    def common(to, name):
        linear(to.self_attention.linear[0], name + ".self_qkv")
        linear(to.self_attention.linear[1], name + ".self_out")
        norm(to.self_attention.layer_norm, name + ".self_norm")
        linear(to.ffn.linear_0, name + ".ffn_in")
        linear(to.ffn.linear_1, name + ".ffn_out")
        norm(to.ffn.layer_norm, name + ".ffn_norm")

    shared = "embedding.weight" in weights
    source = weights["embedding.weight" if shared else "encoder.embedding.weight"]
    target = weights["embedding.weight" if shared else "decoder.embedding.weight"]
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = weights.get("decoder.output.weight", target)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = True
        side.position_encodings.encodings = sinusoids(512, source.shape[1])
    for i, layer in enumerate(spec.encoder.layer):
        common(layer, f"encoder.{i}")
    for i, layer in enumerate(spec.decoder.layer):
        name = f"decoder.{i}"
        common(layer, name)
        linear(layer.attention.linear[0], name + ".cross_q")
        linear(layer.attention.linear[1], name + ".cross_kv")
        linear(layer.attention.linear[2], name + ".cross_out")
        norm(layer.attention.layer_norm, name + ".cross_norm")
    names = [["<s>", "</s>", "<unk>"] + [f"w{i}" for i in range(3, len(table))] for table in (source, target)]
    spec.register_source_vocabulary(names[0])
    spec.register_target_vocabulary(names[1])
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = False  # the sentences have it
    spec.validate()
    spec.optimize(quantization=None)
    return spec, names


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = int(sys.argv[1])
    arrays, meta = read_safetensors(sys.argv[2])
    spec, (source_names, target_names) = convert(arrays, meta)
    at, ids = arrays["bench/at"], arrays["bench/source"]
    sentences = [[source_names[i] for i in ids[a:b]] for a, b in zip(at, at[1:])]
    number = {name: i for i, name in enumerate(target_names)}
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        device = meta["device"]
        translator = ctranslate2.Translator(folder, device=device, inter_threads=1, intra_threads=threads or 0,
                                            compute_type=meta["compute"])
    print(json.dumps({"version": ctranslate2.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        probe = request.get("do") == "probe"
        start, processor = time.perf_counter(), time.process_time()
        results = translator.translate_batch(sentences[:4] if probe else sentences, beam_size=meta["beam"],
                                             length_penalty=1, return_scores=True, max_batch_size=meta["batch"],
                                             max_input_length=0, max_decoding_length=meta["max_length"] - 1)
        seconds, processor = time.perf_counter() - start, time.process_time() - processor
        if not probe:
            with open(request["file"], "w") as file:
                for r in results:
                    file.write(" ".join(str(number[name]) for name in r.hypotheses[0]) + "\n")
        print(json.dumps({"seconds": seconds, "processor": processor}), flush=True)


main()
