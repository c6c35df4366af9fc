"""Evidence reads as a person would write it, and counts an aliased output once."""

from assay.model.evidence import Memory, Residual, Toolchain


def test_device_bytes_are_temp_argument_and_output_less_what_is_aliased() -> None:
    memory = Memory(
        temp_bytes=1000, argument_bytes=200, output_bytes=30, alias_bytes=4, host_temp_bytes=5
    )
    assert memory.device_bytes == 1226


def test_a_toolchain_reads_sorted_with_its_flags_last() -> None:
    versions = {"jaxlib": "0.10.2", "jax": "0.10.1"}
    assert str(Toolchain(versions=versions)) == "jax 0.10.1, jaxlib 0.10.2"
    assert str(Toolchain(versions=versions, flags="F=1")) == "jax 0.10.1, jaxlib 0.10.2, F=1"


def test_a_residual_says_where_it_is_kept() -> None:
    on_host = Residual(dtype="float32", shape=(2, 3), on_host=True, origin="a")
    on_device = Residual(dtype="float32", shape=(), on_host=False, origin="a")
    assert (str(on_host), str(on_device)) == ("float32<host>[2,3]", "float32[]")
