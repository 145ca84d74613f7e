package logs

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestNamesOfLogsFitIntoAFileNameAndStayUnique(t *testing.T) {
	name, uid := strings.Repeat("n", 253), strings.Repeat("u", 36)
	id := strings.Repeat("1", 63)
	long := LinkName{Pod: name, Namespace: strings.Repeat("s", 63), Container: strings.Repeat("c", 63), ID: id + "a"}
	other := long
	other.ID = id + "b"
	cases := []struct{ name, got, suffix string }{
		{"the link of a pod with a long name keeps the id", long.Path("/links"), "_" + long.Container + "-" + long.ID + ".log"},
		{"the directory of a pod with a long name keeps the uid", PodDir("/pods", long.Namespace, name, uid), "_" + uid},
		{"a short name is left as it is", PodDir("/pods", "ns", "web", uid), "/pods/ns_web_" + uid},
		{"the link of a short name is left as it is", LinkName{Pod: "web", Namespace: "ns", Container: "c", ID: "abc"}.Path("/links"), "/links/web_ns_c-abc.log"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if base := filepath.Base(c.got); len(base) > 255 || !strings.HasSuffix(c.got, c.suffix) {
				t.Errorf("%d bytes, and not with the end %q: %s", len(base), c.suffix, c.got)
			}
		})
	}
	if long.Path("/") == other.Path("/") {
		t.Error("two containers have the same link")
	}
}
