package applied

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/atomicfile"
	"monopod/internal/atomicfile/damagetest"
	"monopod/manifests"
	"monopod/manifests/decode"
)

// full is a note with all that a note can have.
func full() *Note {
	at, seconds := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local()), int64(30)
	return &Note{
		UID: "u", GenerateName: "web-", CreationTimestamp: at, Generation: 3, Finalizers: []string{"example.com/wait"},
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "o"}},
		DeletionTimestamp: &at, DeletionGracePeriodSeconds: &seconds, PodUID: "p",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m\u0085\u2028ä😀", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:data":{".":{}}}`)}},
		Conditions:    []corev1.PodCondition{{Type: "example.com/ready", Status: corev1.ConditionTrue}},
	}
}

func noted(note *Note, names ...string) Change {
	c := Change{Put: put("v1", names...), Notes: map[manifests.ObjectID]*Note{}}
	for _, n := range names {
		c.Notes[pod(n)] = note
	}
	return c
}

func TestADocumentKeepsItsNoteAndDoesNotShowIt(t *testing.T) {
	s := NewStore(t.TempDir())
	change(t, s, noted(full(), "a", "b"))
	change(t, s, Change{Put: put("v2", "b")}) // now without one
	for round := range 2 {
		if note := s.Note(pod("a")); !reflect.DeepEqual(note, full()) {
			t.Errorf("round %d: the note is %+v", round, note)
		}
		if note := s.Note(pod("b")); note != nil {
			t.Errorf("round %d: a document that was stored without a note has %+v", round, note)
		}
		if data, err := s.Get(pod("a")); err != nil || string(data) != "v1 a" {
			t.Errorf("round %d: %q %v", round, data, err)
		}
		if all := s.Notes(); len(all) != 1 || all["pod.default.a.yaml"] == nil {
			t.Errorf("round %d: notes %v", round, all)
		}
		s = NewStore(s.Dir()) // after a restart
	}
	change(t, s, Change{Remove: []manifests.ObjectID{pod("a")}})
	if note := s.Note(pod("a")); note != nil {
		t.Errorf("a removed object has the note %+v", note)
	}
}

func TestANoteIsACommentForWhatReadsManifests(t *testing.T) {
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
	for name, text := range map[string]string{"valid": manifest, "invalid": strings.ReplaceAll(manifest, "image", "imag")} {
		data, err := Join(full(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		note, rest := Split(data)
		if !reflect.DeepEqual(note, full()) || string(rest) != text {
			t.Errorf("%s: split into %+v and %q", name, note, rest)
		}
		c, err := decode.All("a.yaml", data, decode.Options{Source: "applied"})
		if name == "invalid" {
			if err == nil || !strings.Contains(err.Error(), "a.yaml:5:") { // the line in the stored file
				t.Errorf("%v", err)
			}
			continue
		}
		if err != nil || len(c.Pods) != 1 {
			t.Fatalf("%+v, %v", c, err)
		}
		Give(note, c)
		if p := c.Pods[0]; p.Object.UID != "u" || p.Given != note || len(p.Object.Finalizers) > 0 {
			t.Errorf("the pod has uid %q, finalizers %q", p.Object.UID, p.Object.Finalizers)
		}
	}
}

func TestWhoGetsTheUIDOfANote(t *testing.T) {
	c := &manifests.Content{
		Objects:   []*manifests.Object{{Kind: "ConfigMap", Object: &corev1.ConfigMap{}}},
		Workloads: []*manifests.Object{{Kind: "Deployment", Object: &corev1.ConfigMap{}}},
	}
	Give(nil, c)
	if c.Objects[0].Given != nil || c.Workloads[0].Object.GetUID() != "" {
		t.Error("no note gives something")
	}
	Give(&Note{UID: "u"}, c)
	if c.Objects[0].Given == nil || c.Objects[0].Object.GetUID() != "" || c.Workloads[0].Object.GetUID() != "u" {
		t.Errorf("%+v %+v", c.Objects[0], c.Workloads[0])
	}
	o := &corev1.ConfigMap{}
	full().SetOn(o)
	if o.UID != "u" || o.Generation != 3 || o.GenerateName != "web-" || len(o.ManagedFields) != 1 || o.DeletionTimestamp == nil || len(o.OwnerReferences) != 1 || len(o.Finalizers) != 1 {
		t.Errorf("%+v", o.ObjectMeta)
	}
	(*Note)(nil).SetOn(o)
	(&Note{}).SetOn(o)
	if o.UID != "u" || o.CreationTimestamp.IsZero() {
		t.Errorf("an empty note has cleared %+v", o.ObjectMeta)
	}
}

// TestADamagedNoteCostsOnlyTheNote: the manifest stays, and can be changed.
func TestADamagedNoteCostsOnlyTheNote(t *testing.T) {
	good, err := Join(&Note{UID: types.UID(strings.Repeat("u", 50))}, []byte("v1 a"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"no JSON":      notePrefix + "{\nv1 a",
		"another type": notePrefix + `{"uid": 5}` + "\nv1 a",
		"too large":    notePrefix + `{"uid": "` + strings.Repeat("u", MaxNote) + "\"}\nv1 a",
		"zeros":        strings.Replace(string(good), "uuuuuuuuuu", strings.Repeat("\x00", 10), 1),
	} {
		s := NewStore(t.TempDir())
		if err := os.WriteFile(s.Path(pod("a")), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if note := s.Note(pod("a")); note != nil {
			t.Errorf("%s: the note is %+v", name, note)
		}
		if got, err := s.Get(pod("a")); err != nil || string(got) != "v1 a" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		change(t, s, noted(full(), "a"))
		if note := s.Note(pod("a")); note == nil {
			t.Errorf("%s: the note cannot be replaced", name)
		}
	}
}

func TestAPowerCutLeavesNoNoteOfADamagedDocument(t *testing.T) {
	for name, damage := range damagetest.Ways() {
		s := NewStore(t.TempDir())
		change(t, s, noted(full(), "a", "b"))
		if err := damage(s.Path(pod("a"))); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(damagetest.Stray(s.Path(pod("a"))))
		next := NewStore(s.Dir())
		if err := next.Open(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = next.Note(pod("a")) // whatever it is
		if note := next.Note(pod("b")); !reflect.DeepEqual(note, full()) {
			t.Errorf("%s: the note of another document is %+v", name, note)
		}
		if data, err := next.Get(pod("a")); err != nil || data == nil {
			t.Errorf("%s: %q %v", name, data, err)
		}
		change(t, next, Change{Remove: []manifests.ObjectID{pod("a")}})
	}
}

func TestACutOffChangeHasTheNotesOfItsDocuments(t *testing.T) {
	var steps []string
	for n := 0; ; n++ {
		s := NewStore(filepath.Join(t.TempDir(), "applied"))
		first, second := &Note{UID: "first"}, &Note{UID: "second", Generation: 2}
		change(t, s, noted(first, "a", "b", "c"))
		whole := Change{Put: put("v2", "a", "b"), Notes: map[manifests.ObjectID]*Note{pod("a"): second, pod("b"): second}, Remove: []manifests.ObjectID{pod("c")}}
		step := crashAt(t, s, n, whole)
		if step == "" {
			break
		}
		steps = append(steps, step)
		next := NewStore(s.Dir())
		_ = next.Note(pod("a")) // read before the change is finished
		if err := next.Open(); err != nil {
			t.Fatal(err)
		}
		want, word, c := first, "v1 a", "first"
		if slices.Contains(steps, "decided") {
			want, word, c = second, "v2 a", ""
		}
		data, err := next.Get(pod("a"))
		if got := next.Note(pod("a")); err != nil || string(data) != word || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(next.Note(pod("b")), want) {
			t.Errorf("cut off at %s: %q with %+v, want %q with %+v", step, data, got, word, want)
		}
		if got := next.Note(pod("c")); (got == nil) != (c == "") {
			t.Errorf("cut off at %s: the removed one has %+v", step, got)
		}
	}
	if !slices.Contains(steps, "forgotten") {
		t.Errorf("steps %v", steps)
	}
}

// TestNotesOfAnUnfinishedChange: it is decided, so that its notes count.
func TestNotesOfAnUnfinishedChange(t *testing.T) {
	s := NewStore(t.TempDir())
	change(t, s, noted(&Note{UID: "first"}, "a"))
	s.disk.Replace = func(from, to string) error {
		if to == s.Path(pod("b")) {
			return errors.New("the disk is bad")
		}
		return atomicfile.Replace(from, to)
	}
	err := s.Change(noted(&Note{UID: "second"}, "a", "b"))
	if _, ok := errors.AsType[*UnfinishedError](err); !ok || s.Note(pod("b")) == nil || s.Note(pod("a")).UID != "second" {
		t.Fatalf("%v %+v", err, s.Note(pod("b")))
	}
	s.disk.Replace = func(string, string) error { return errors.New("the disk is bad") }
	if err := s.Change(noted(&Note{UID: "third"}, "a")); err == nil || s.Note(pod("a")).UID != "second" {
		t.Errorf("%v: what was not stored has the note %+v", err, s.Note(pod("a")))
	}
}

func TestANoteThatIsTooLargeChangesNothing(t *testing.T) {
	s := NewStore(t.TempDir())
	change(t, s, noted(&Note{UID: "first"}, "a"))
	err := s.Change(noted(&Note{Finalizers: []string{strings.Repeat("f", MaxNote)}}, "a"))
	if !errors.Is(err, ErrNoteTooLarge) || !strings.Contains(fmt.Sprint(err), "nothing was changed") || s.Note(pod("a")).UID != "first" {
		t.Errorf("%v, %+v", err, s.Note(pod("a")))
	}
}

func TestKindsThatAreNoManifestsAreHiddenFromWhatReadsThem(t *testing.T) {
	s := NewStore(t.TempDir())
	id := manifests.ObjectID{Kind: "Namespace", Name: "team"}
	account := manifests.ObjectID{Kind: "ServiceAccount", Namespace: "team", Name: "ci"}
	change(t, s, Change{
		Put:   map[manifests.ObjectID][]byte{id: []byte("ns"), account: []byte("sa"), pod("a"): []byte("a")},
		Notes: map[manifests.ObjectID]*Note{id: {UID: "u"}},
	})
	if got := stored(t, s.Dir()); len(got) != 1 || got["pod.default.a.yaml"] != "a" {
		t.Errorf("readers see %v", got)
	}
	next := NewStore(s.Dir())
	if err := next.Open(); err != nil {
		t.Fatal(err)
	}
	docs := next.Documents()
	if len(docs) != 2 || string(docs[FileName(id)]) != "ns" || string(docs[FileName(account)]) != "sa" || next.Note(id).UID != "u" {
		t.Errorf("documents %q, note %+v", docs, next.Note(id))
	}
	change(t, next, Change{Remove: []manifests.ObjectID{id, account}})
	if docs := next.Documents(); len(docs) > 0 || next.Note(id) != nil {
		t.Errorf("after the removal: %q", docs)
	}
	if !Kept("Namespace") || Kept("Pod") {
		t.Error("the kinds that are kept")
	}
}

// TestNotesAreReadDuringChanges: kubeview asks for them at any time.
func TestNotesAreReadDuringChanges(t *testing.T) {
	s := NewStoreOn(Disk{Write: os.WriteFile, Replace: os.Rename}, t.TempDir())
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if note := s.Note(pod("a")); note != nil && note.UID == "" {
					t.Error("half a note")
				}
				_ = s.Notes()
			}
		})
	}
	for i := range 5 {
		change(t, s, noted(&Note{UID: types.UID(fmt.Sprint(i + 1))}, "a"))
	}
	close(done)
	readers.Wait()
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte(notePrefix + "{}\na"))
	f.Add([]byte("a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		note, rest := Split(data)
		if note == nil {
			return
		}
		again, err := Join(note, rest)
		if err != nil {
			return
		}
		if second, tail := Split(again); second == nil || string(tail) != string(rest) {
			t.Errorf("%q became %q", data, again)
		}
	})
}
