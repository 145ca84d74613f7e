package decode

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"monopod/e2e/corpus"
	"monopod/internal/testfiles"
	"monopod/manifests"
	"monopod/manifests/defaults"
	"monopod/manifests/document"
	"monopod/manifests/kinds"
	"monopod/manifests/policy"
	"monopod/manifests/validate"
)

// TestCorpus holds our verdict on each document of the corpus against that of Kubernetes, and each difference
// against the list of those that we chose.
func TestCorpus(t *testing.T) {
	t.Parallel()
	var differences []string
	known := knownDifferences(t)
	for _, f := range corpus.Open(t) {
		lenient := policy.Policy{AllowedUnsafeSysctls: []string{"net.*", "kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*"}}
		_, whole := Pods(f.Name, f.Data, Options{Policy: lenient})
		if len(manifests.Errors(whole)) == 0 && whole != nil {
			t.Errorf("%s: an error without an *Error: %v", f.Name, whole)
		}
		docs := document.Split(f.Data)
		accepted := len(docs) > 0
		for i, d := range docs {
			l := loader{file: f.Name, policy: lenient, first: map[manifests.ObjectID]int{}}
			l.document(d)
			accepted = accepted && len(l.errs) == 0
			if unregistered(&l) {
				continue
			}
			kubernetes := "nothing"
			if i < len(f.Verdicts) {
				kubernetes = kubernetesSays(f.Verdicts[i])
			}
			ours := summary(l.errs)
			if (ours == "accepted") == strings.HasPrefix(kubernetes, "accepted") {
				continue
			}
			if ours == "accepted" && len(l.content.Notes) > 0 {
				ours = leniency(l.content.Notes)
			}
			differences = append(differences, fmt.Sprintf("%s\t%d\t%s\t%s", f.Name, i+1, kubernetes, ours))
		}
		if (whole == nil) != accepted && len(docs) > 0 {
			differences = append(differences, fmt.Sprintf("%s\tall\taccepted\t%s", f.Name, summary(manifests.Errors(whole))))
		}
	}
	testfiles.Compare(t, filepath.Join("testdata", "corpus-differences.tsv"), "file\tdocument\tKubernetes\tmonopod, and why\n"+strings.Join(differences, "\n")+"\n")
	for _, d := range differences {
		cells := strings.Split(d, "\t")
		wrong := cells[3] == "accepted" && cells[2] == "refused" || cells[2] == "accepted" && strings.Contains(cells[3], "invalid")
		if wrong && known[cells[0]+"\t"+cells[1]] == "" {
			t.Errorf("a difference that nobody can want: %s", d)
		}
	}
}

// unregistered reports whether the kind of a document is unknown to the reference program, whose verdict is meaningless then.
func unregistered(l *loader) bool {
	unknown := func(o *manifests.Object) bool { return o.Kind == "RuntimeClass" || o.Kind == "StorageClass" }
	return len(l.errs) == 0 && (len(l.ignored) > 0 || slices.ContainsFunc(l.content.Objects, unknown))
}

// kubernetesSays is a verdict in a word.
func kubernetesSays(v corpus.Verdict) string {
	switch {
	case v.OK() && v.Kind == "v1 List":
		return "accepted without its items"
	case v.OK():
		return "accepted"
	}
	return "refused"
}

// summary puts a list of errors into one line: which choices of ours they come from.
func summary(errs []*manifests.Error) string {
	if len(errs) == 0 {
		return "accepted"
	}
	reasons := map[string]bool{}
	for _, e := range errs {
		reasons[reason(e)] = true
	}
	return "refused: " + strings.Join(slices.Sorted(maps.Keys(reasons)), "; ")
}

// leniency describes how input that Kubernetes refuses was read.
func leniency(notes []*manifests.Error) string {
	read := make([]string, len(notes))
	for i, n := range notes {
		read[i] = n.Field + ": " + n.Msg
	}
	return "accepted as podman does: " + strings.Join(read, "; ")
}

var inLists = regexp.MustCompile(`\[\d+\]`)

func reason(e *manifests.Error) string {
	path := inLists.ReplaceAllString(e.Field, "[]")
	switch {
	case kinds.Known().ByKind[e.Kind].Role == kinds.Workload && strings.HasPrefix(path, "spec."):
		return "what a " + e.Kind + " makes, which the reference program does not check"
	case e.Kind == "Service" && strings.HasPrefix(path, "spec."):
		return "what is in a Service, which the reference program does not check"
	case strings.HasPrefix(e.Msg, "kind ") || strings.HasPrefix(e.Msg, "there is no kind"):
		kind, _, _ := strings.Cut(strings.TrimPrefix(e.Msg, "there is no "), ":")
		return kind
	case strings.HasPrefix(e.Msg, "not supported: ") || strings.Contains(e.Msg, "is not supported: "):
		return "never: " + path
	case e.Kind != "" && strings.HasPrefix(path, "metadata."):
		return "metadata of a " + e.Kind + ", which the reference program does not check"
	case path == "apiVersion" && strings.HasPrefix(e.Msg, "there is no "):
		return e.Msg
	case strings.Contains(e.Msg, "is not an image name"):
		return "not the name of an image, which a kubelet reports only when it runs the pod"
	case strings.Contains(e.Msg, "already defined at line"):
		return "the same pod twice in one file"
	}
	return "invalid: " + path + ": " + e.Msg
}

// TestCorpusWithoutFates compares decoding, defaults and validation alone with Kubernetes, for every v1 Pod.
func TestCorpusWithoutFates(t *testing.T) {
	t.Parallel()
	known := knownDifferences(t)
	pods := 0
	for _, f := range corpus.Open(t) {
		docs := document.Split(f.Data)
		for i, d := range docs {
			pod, err := strictPod(d)
			if pod == nil || len(docs) != len(f.Verdicts) {
				continue
			}
			pods++
			if err == nil {
				defaults.Pod(pod)
				err = validate.Pod(pod).ToAggregate()
			}
			name := fmt.Sprintf("%s\t%d", f.Name, i+1)
			if agree := (err == nil) == f.Verdicts[i].OK(); agree == (known[name] != "") {
				t.Errorf("%s: ours %v, Kubernetes %v, known difference %q", name, err, f.Verdicts[i], known[name])
			}
			delete(known, name)
		}
	}
	for name := range known {
		t.Errorf("the list of known differences has a stale line: %s", name)
	}
	if pods < 200 {
		t.Errorf("only %d pods compared", pods)
	}
}

// strictPod decodes a document that says it is a v1 Pod; nil is something else.
func strictPod(d document.Document) (*corev1.Pod, error) {
	data, err := d.Data, error(nil)
	if !d.JSON {
		var twice error
		if data, twice = yaml.YAMLToJSONStrict(d.Data); twice != nil {
			if data, err = yaml.YAMLToJSON(d.Data); err == nil {
				err = twice
			}
		}
	}
	var pod corev1.Pod
	if data == nil {
		return nil, err
	}
	strict, decodeErr := kjson.UnmarshalStrict(data, &pod)
	if pod.Kind != "Pod" || pod.APIVersion != "v1" {
		return nil, err
	}
	for _, e := range append(strict, decodeErr) {
		if e != nil {
			err = e
		}
	}
	return &pod, err
}

// knownDifferences reads the hand-written list.
func knownDifferences(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "corpus-validation.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		cells := strings.Split(line, "\t")
		known[cells[0]+"\t"+cells[1]] = cells[2]
	}
	return known
}
