package nodemeta_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/atomicfile/damagetest"
	"monopod/node/nodemeta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nodeWith(labels, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels, Annotations: annotations}}
}

func TestClientsChangeOnlyWhatNobodyElseSets(t *testing.T) {
	t.Parallel()
	configured := map[string]string{"site": "lab", "taken": "config"}
	own := nodemeta.Metadata{Labels: map[string]string{"disk": "ssd", "taken": "client"}, Annotations: map[string]string{"note": "a"}}
	shown := func() *corev1.Node {
		return nodeWith(
			map[string]string{"site": "lab", "taken": "config", "disk": "ssd", corev1.LabelHostname: "n1"},
			map[string]string{"note": "a", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		)
	}
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		// want are the labels and annotations, or the error.
		want string
	}{
		"nothing":            {func(*corev1.Node) {}, "map[disk:ssd taken:client] map[note:a]"},
		"a new label":        {func(n *corev1.Node) { n.Labels["gpu"] = "" }, "map[disk:ssd gpu: taken:client] map[note:a]"},
		"another value":      {func(n *corev1.Node) { n.Labels["disk"] = "hdd" }, "map[disk:hdd taken:client] map[note:a]"},
		"a label goes":       {func(n *corev1.Node) { delete(n.Labels, "disk") }, "map[taken:client] map[note:a]"},
		"a new annotation":   {func(n *corev1.Node) { n.Annotations["example.com/a"] = "b" }, "map[disk:ssd taken:client] map[example.com/a:b note:a]"},
		"an annotation goes": {func(n *corev1.Node) { delete(n.Annotations, "note") }, "map[disk:ssd taken:client] map[]"},
		"of the configuration": {
			func(n *corev1.Node) { n.Labels["site"] = "other" },
			"label site is defined in nodeLabels in the monopod configuration; change it there",
		},
		"of the configuration, removed": {
			func(n *corev1.Node) { delete(n.Labels, "site") },
			"label site is defined in nodeLabels in the monopod configuration; change it there",
		},
		"configured later": {
			func(n *corev1.Node) { n.Labels["taken"] = "client" },
			"label taken is defined in nodeLabels in the monopod configuration; change it there",
		},
		"well-known": {
			func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "x" },
			"label kubernetes.io/hostname is set by monopod; it cannot be changed",
		},
		"well-known, removed": {
			func(n *corev1.Node) { n.Labels = nil },
			"label kubernetes.io/hostname is set by monopod; it cannot be changed",
		},
		"an annotation of monopod": {
			func(n *corev1.Node) {
				n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] = "false"
			},
			"annotation volumes.kubernetes.io/controller-managed-attach-detach is set by monopod; it cannot be changed",
		},
		"a reserved annotation": {
			func(n *corev1.Node) { n.Annotations["monopod.dev/origin"] = "/x" },
			"annotation monopod.dev/origin is set by monopod; it cannot be changed",
		},
		"too many": {func(n *corev1.Node) {
			for i := range nodemeta.MaxKeys {
				n.Labels[fmt.Sprint("l", i)] = ""
			}
		}, nodemeta.ErrTooLarge.Error()},
		"too large": {func(n *corev1.Node) { n.Annotations["big"] = strings.Repeat("x", nodemeta.MaxBytes) }, nodemeta.ErrTooLarge.Error()},
		"too large managed fields": {func(n *corev1.Node) {
			n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("x", nodemeta.MaxBytes)}}
		}, nodemeta.ErrTooLarge.Error()},
	} {
		wanted := shown()
		c.edit(wanted)
		next, err := own.Wanted(shown(), wanted, configured)
		if err == nil {
			err = next.Check()
		}
		have := fmt.Sprint(next.Labels, " ", next.Annotations)
		if err != nil {
			have = err.Error()
		}
		var fixed *nodemeta.FixedError
		if have != c.want || err != nil && !errors.Is(err, nodemeta.ErrTooLarge) && !errors.As(err, &fixed) {
			t.Errorf("%s: %s, want %s", name, have, c.want)
		}
	}
}

func TestTimesOfManagedFieldsAreNoChange(t *testing.T) {
	t.Parallel()
	of := func(at time.Time, manager string) nodemeta.Metadata {
		return nodemeta.Metadata{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager, Time: new(metav1.NewTime(at))}}}
	}
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	if !of(a, "x").Equal(of(b, "x")) || of(a, "x").Equal(of(a, "y")) || !of(a, "x").SameValues(of(b, "y")) {
		t.Error("they are compared wrongly")
	}
	if (nodemeta.Metadata{Labels: map[string]string{"a": "b"}}).Equal(nodemeta.Metadata{Annotations: map[string]string{"a": "b"}}) {
		t.Error("a label is no annotation")
	}
}

func TestWhatClientsSetSurvivesARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "node.json")
	s := nodemeta.NewStore(path, nil)
	if err := s.Load(); err != nil || len(s.Current().Labels) > 0 {
		t.Fatal(s.Current(), err)
	}
	want := nodemeta.Metadata{Labels: map[string]string{"disk": "ssd"}, Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}
	if err := s.Set(want); err != nil {
		t.Fatal(err)
	}
	later := nodemeta.NewStore(path, nil)
	if err := later.Load(); err != nil || !later.Current().Equal(want) {
		t.Errorf("%+v, %v", later.Current(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if err := later.Set(nodemeta.Metadata{}); err != nil {
		t.Fatal(err)
	}
	// A removal of the file would have to be synced, and would look like the loss of a damaged one.
	if b, err := os.ReadFile(path); err != nil || string(b) != "{}\n" {
		t.Errorf("nothing is set: %q, %v", b, err)
	}
	if err := later.Load(); err != nil || !later.Current().Equal(nodemeta.Metadata{}) {
		t.Errorf("%+v, %v", later.Current(), err)
	}
}

// TestHiddenLabelsOfClientsAreKept: a label that the configuration or a later monopod sets, too, counts again once it no longer does.
func TestHiddenLabelsOfClientsAreKept(t *testing.T) {
	t.Parallel()
	own := nodemeta.Metadata{
		Labels:      map[string]string{"site": "client", "disk": "ssd", corev1.LabelTopologyZone: "a", "late": "x"},
		Annotations: map[string]string{"note": "a"},
	}
	shown := nodeWith(map[string]string{"site": "lab", "disk": "ssd", corev1.LabelTopologyZone: "monopod"}, map[string]string{"note": "monopod"})
	wanted := shown.DeepCopy()
	wanted.Labels["disk"] = "hdd"
	next, err := own.Wanted(shown, wanted, map[string]string{"site": "lab"})
	want := map[string]string{"site": "client", "disk": "hdd", corev1.LabelTopologyZone: "a", "late": "x"}
	if err != nil || !maps.Equal(next.Labels, want) || !maps.Equal(next.Annotations, own.Annotations) {
		t.Errorf("%v %v, %v", next.Labels, next.Annotations, err)
	}
}

// TestLostLabelsAreLostUntilLabelsAreSet: other changes of the Node do not tell which labels it had.
func TestLostLabelsAreLostUntilLabelsAreSet(t *testing.T) {
	t.Parallel()
	lost := nodemeta.Metadata{LabelsLost: true}
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		lost bool
	}{
		"nothing":       {func(*corev1.Node) {}, true},
		"an annotation": {func(n *corev1.Node) { n.Annotations["a"] = "b" }, true},
		"a label":       {func(n *corev1.Node) { n.Labels["a"] = "b" }, false},
	} {
		shown := nodeWith(map[string]string{corev1.LabelHostname: "n1"}, map[string]string{})
		wanted := shown.DeepCopy()
		c.edit(wanted)
		next, err := lost.Wanted(shown, wanted, nil)
		if err != nil || next.LabelsLost != c.lost {
			t.Errorf("%s: %+v, %v", name, next, err)
		}
	}
}

func TestFollowersSeeEachChange(t *testing.T) {
	t.Parallel()
	var seen []string
	s := nodemeta.NewStore(filepath.Join(t.TempDir(), "node.json"), func() { seen = append(seen, "changed") })
	stop := s.Follow(func(m nodemeta.Metadata) { seen = append(seen, fmt.Sprint(m.Labels)) })
	set := func(value string) {
		if err := s.Set(nodemeta.Metadata{Labels: map[string]string{"a": value}}); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	set("2")
	stop()
	set("3")
	if got := strings.Join(seen, " "); got != "map[] map[a:1] changed map[a:2] changed changed" {
		t.Error(got)
	}
}

func TestWhatCannotBeStoredIsNotThere(t *testing.T) {
	t.Parallel()
	calls := 0
	s := nodemeta.NewStore(filepath.Join(t.TempDir(), "missing", "node.json"), func() { calls++ })
	defer s.Follow(func(nodemeta.Metadata) { calls++ })()
	if err := s.Set(nodemeta.Metadata{Labels: map[string]string{"a": "b"}}); err == nil || len(s.Current().Labels) > 0 || calls != 1 {
		t.Errorf("%v, %+v, %d", err, s.Current(), calls)
	}
}

// TestADamagedFileIsReplaced: a machine with a bad disk can still be labeled. Until then, its labels are not known, however often it restarts.
func TestADamagedFileIsReplaced(t *testing.T) {
	t.Parallel()
	for name, spoil := range damagetest.Ways() {
		path := filepath.Join(t.TempDir(), "node.json")
		want := nodemeta.Metadata{Labels: map[string]string{"a": "b"}}
		if err := nodemeta.NewStore(path, nil).Set(want); err != nil {
			t.Fatal(err)
		}
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		load := func() *nodemeta.Store {
			s := nodemeta.NewStore(path, nil)
			if err := s.Load(); !errors.Is(err, nodemeta.ErrLost) || !s.Current().LabelsLost || len(s.Current().Labels) > 0 {
				t.Errorf("%s: %+v, %v", name, s.Current(), err)
			}
			return s
		}
		load()
		if _, err := os.Lstat(path + ".damaged"); err != nil {
			t.Errorf("%s: it is not set aside: %v", name, err)
		}
		set := func(m nodemeta.Metadata) {
			if err := load().Set(m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		set(nodemeta.Metadata{Annotations: map[string]string{"a": "b"}, LabelsLost: true})
		if m := load().Current(); m.Annotations["a"] != "b" {
			t.Errorf("%s: %+v", name, m)
		}
		set(want)
		for range 2 { // with labels, then without
			again := nodemeta.NewStore(path, nil)
			if err := again.Load(); err != nil || !maps.Equal(again.Current().Labels, want.Labels) || again.Current().LabelsLost {
				t.Errorf("%s: %+v, %v", name, again.Current(), err)
			}
			want.Labels = nil
			if err := again.Set(want); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
