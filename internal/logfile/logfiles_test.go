package logfile

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/testfiles"
	"monopod/node"
	"monopod/runner/ctrd/logs"
)

func TestFindingTheLogOfAnInstance(t *testing.T) {
	for _, c := range []struct {
		name string
		// files of the container, and links from instance to number
		files  []string
		links  map[string]string
		wanted node.Instance
		want   string
	}{
		{"the link decides", []string{"0.log", "1.log", "2.log"}, map[string]string{"x": "1.log"}, node.Instance{ID: "x"}, "1.log"},
		{"without a link it is the last", []string{"0.log", "2.log", "10.log", "9.log"}, nil, node.Instance{ID: "x"}, "10.log"},
		{"gone before a known one: the one before that", []string{"0.log", "3.log", "4.log", "7.log"}, map[string]string{"new": "4.log"}, node.Instance{ID: "old", Successor: "new"}, "3.log"},
		{"other files do not count", []string{"0.log", "0.log.20260101-000000", "5.txt", "x.log"}, nil, node.Instance{ID: "x"}, "0.log"},
		{"it is just being rotated", []string{"0.log", "1.log.20260101-000000", "1.log.20260101-000001.gz"}, nil, node.Instance{ID: "x"}, "1.log"},
		{"nothing is there", []string{"x.txt"}, nil, node.Instance{ID: "x"}, ""},
		{"nothing before the first", []string{"0.log"}, map[string]string{"new": "0.log"}, node.Instance{ID: "old", Successor: "new"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New(filepath.Join(t.TempDir(), "pods"))
			dir := filepath.Join(l.podLogsDir, "ns_p_u1", "c")
			for _, f := range c.files {
				testfiles.Write(t, filepath.Join(dir, f), "")
			}
			for id, f := range c.links {
				if err := logs.Link(l.linksDir, logs.LinkName{Pod: "p", Namespace: "ns", Container: "c", ID: id}, filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
			c.wanted.Container = "c"
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
			got, err := l.find(node.LogQuery{Pod: pod, Instance: c.wanted})
			switch {
			case c.want == "" && (err == nil || !strings.Contains(err.Error(), "no log of container c")):
				t.Errorf("found %s, %v", got, err)
			case c.want != "" && (err != nil || got != filepath.Join(dir, c.want)):
				t.Errorf("found %s, %v, want %s", got, err, c.want)
			}
		})
	}
	l := New("/no/such/logs")
	if _, err := l.find(node.LogQuery{Pod: &corev1.Pod{}}); err == nil {
		t.Error("a directory that does not exist has logs")
	}
}

func TestOneStreamOfALog(t *testing.T) {
	l := New(filepath.Join(t.TempDir(), "pods"))
	testfiles.Write(t, filepath.Join(l.podLogsDir, "ns_p_u1", "c", "0.log"),
		"2026-01-01T00:00:01Z stdout F out\n2026-01-01T00:00:02Z stderr F err\n")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u1"}}
	for stream, want := range map[string]string{"": "out\nerr\n", corev1.LogStreamStdout: "out\n", corev1.LogStreamStderr: "err\n"} {
		var got strings.Builder
		q := node.LogQuery{Pod: pod, Instance: node.Instance{Container: "c"}, Tail: -1, Stream: stream}
		if err := l.ReadLog(t.Context(), q, &got); err != nil || got.String() != want {
			t.Errorf("%q: %q, %v", stream, got.String(), err)
		}
	}
}
