"""Makes corpus/npy: what NumPy writes, and what it might. usage: corpus_npy.py FOLDER"""
import io, os, sys
import numpy as np
out = sys.argv[1]
def put(name, first, data):
    open(os.path.join(out, name), "wb").write(bytes([first]) + data)
def npy(a, **k):
    f = io.BytesIO(); np.lib.format.write_array(f, a, **k); return f.getvalue()
def npz(n, save=np.savez, h=2):
    f = io.BytesIO(); save(f, **{str(j): np.arange(4 * h, dtype="<i4").reshape(4, h) for j in range(n)}); return f.getvalue()
a = np.arange(12, dtype="<i4").reshape(4, 3)
put("int32", 0, npy(a)); put("int64", 0, npy(a.astype("<i8"))); put("float32", 0, npy(a.astype("<f4"))); put("half", 0, npy(a.astype("<f2")))
put("bool", 0, npy(a > 3)); put("one_dimension", 0, npy(a[:, 0].copy())); put("version2", 0, npy(a, version=(2, 0))); put("big_endian", 0, npy(a.astype(">i4")))
put("fortran", 0, npy(np.asfortranarray(a))); put("three", 0, npy(a[:, :, None])); put("scalar", 0, npy(np.array(3, "<i4"))); put("empty", 0, npy(a[:0]))
put("structured", 0, npy(np.zeros(3, [("x", "<i4")]))); put("double", 0, npy(a.astype("<f8"))); put("cut", 0, npy(a)[:-1]); put("cut_header", 0, npy(a)[:40])
put("huge", 0, npy(a).replace(b"(4, 3)", b"(9223372036854775807, 3)")); put("order_missing", 0, npy(a).replace(b"fortran_order", b"fortran_ordeR"))
put("archive", 1 + 2 * 3, npz(3)); put("archive_of_26", 1 + 2 * 26, npz(26, h=1)); put("deflated", 1 + 2 * 2, npz(2, np.savez_compressed)); put("few", 1 + 2 * 4, npz(3))
put("archive_cut", 1 + 2 * 3, npz(3)[:-5]); z = npz(2)
put("far_directory", 1 + 4, z[:-6] + b"\xff\xff\xff\x7f\0\0"); put("zip64", 1 + 4, z[:-6] + b"\xff\xff\xff\xff\0\0"); put("commented", 1 + 4, z[:-2] + b"\3\0abc")
put("no_archive", 1 + 2, npy(a)); put("nothing", 1 + 2, b"")
