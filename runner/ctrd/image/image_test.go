package image

import "testing"

func TestAtDigest(t *testing.T) {
	const d = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	const other = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for ref, want := range map[string]string{
		"busybox":                  "docker.io/library/busybox@" + d,
		"example.com:5000/a/b:1":   "example.com:5000/a/b@" + d,
		"example.com/a@" + other:   "example.com/a@" + other,
		"example.com/a:1@" + other: "example.com/a:1@" + other,
		"No Name":                  "No Name",
	} {
		if got := AtDigest(ref, d); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
		if again := AtDigest(AtDigest(ref, d), d); again != want {
			t.Errorf("%s: twice: %s", ref, again)
		}
	}
}

// TestADigestOfAReferenceIsThatOfItsRepository: a rollback asks for the same content, whatever registry and tag the reference names.
func TestADigestOfAReferenceIsThatOfItsRepository(t *testing.T) {
	const d = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, refs := range [][]string{
		{"busybox", "busybox:1", "docker.io/busybox:latest", "index.docker.io/library/busybox"},
		{"example.com/a/b", "example.com/a/b:1", "example.com/a/b:latest"},
	} {
		for _, ref := range refs[1:] {
			if got, want := AtDigest(ref, d), AtDigest(refs[0], d); got != want {
				t.Errorf("%s: %s, and %s: %s", ref, got, refs[0], want)
			}
		}
	}
	if AtDigest("example.com/a", d) == AtDigest("example.com/b", d) {
		t.Error("two repositories have one reference")
	}
}
