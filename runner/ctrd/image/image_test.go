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
