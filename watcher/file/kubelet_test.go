package file

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monopod/internal/model"
	"monopod/watcher"
	"monopod/watcher/watchertest"
)

// answersOf is what a set says: pods with their images, other objects, and the states of files that are not Accepted, with reasons.
func answersOf(set watcher.Set) (pods string, rest []string) {
	for _, p := range set.Pods {
		pods += " " + p.Object.Name + "=" + p.Object.Spec.Containers[0].Image
	}
	for _, o := range slices.Concat(set.Objects, set.Workloads) {
		rest = append(rest, o.Kind+" "+o.Object.GetName())
	}
	for _, r := range set.Inputs {
		if r.State != model.InputAccepted {
			rest = append(rest, filepath.Base(r.Input)+": "+string(r.State)+": "+strings.Join(r.Errors, "; "))
		}
	}
	return strings.TrimSpace(pods), rest
}

// podWith is the manifest of a pod with a line more at the end of its spec.
func podWith(name, image, line string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  containers:\n  - name: c\n    image: " + image + "\n" + line
}

// TestWhatAKubeletDoesToItsDirectoryIsTurnedAround has the cases of docs/field-notes.md: a directory with two running pods, and what
// happens to it. There is no grace period here: the loss of a file counts at once, and the pods must survive for other reasons.
func TestWhatAKubeletDoesToItsDirectoryIsTurnedAround(t *testing.T) {
	const both = "other=o:1 web=w:1"
	web := podWith("web", "w:1", "")
	change := func(text string) func(h watchertest.Hand) {
		return func(h watchertest.Hand) { watchertest.Write(h.T, filepath.Join(h.At, "web.yaml"), text) }
	}
	tests := []struct {
		name string
		do   func(h watchertest.Hand)
		// pods are desired afterwards, and says is part of the reports.
		pods string
		says []string
	}{
		{"0.1 a syntax error", change(web + "  {\n"), both, []string{"web.yaml: Refused: "}},
		{"0.2 a typo in one of two files", change(strings.Replace(web, "image:", "imag:", 1)), both, []string{`did you mean "image"?`}},
		{"0.2 the other file can be edited then", func(h watchertest.Hand) {
			change(strings.Replace(web, "image:", "imag:", 1))(h)
			watchertest.Write(h.T, filepath.Join(h.At, "other.yaml"), podWith("other", "o:2", ""))
		}, "other=o:2 web=w:1", []string{`did you mean "image"?`}},
		{"0.3 cut to 0 bytes", func(h watchertest.Hand) { watchertest.Must(h.T, os.Truncate(filepath.Join(h.At, "web.yaml"), 0)) }, both, []string{"web.yaml: Refused: ", "empty"}},
		{"0.4 the directory is removed", func(h watchertest.Hand) { watchertest.Must(h.T, os.RemoveAll(h.At)) }, both, []string{"manifests: Unreachable: "}},
		{"0.4 the directory is renamed", func(h watchertest.Hand) { watchertest.Must(h.T, os.Rename(h.At, h.At+".away")) }, both, []string{"manifests: Unreachable: "}},
		{"0.5 metadata.restartPolicy", change(strings.Replace(web, "{name: web}", "{name: web, restartPolicy: Never}", 1)), both, []string{"there is a field of this name at spec.restartPolicy"}},
		{"0.5 spec.restartpolicy", change(web + "  restartpolicy: Never\n"), both, []string{`did you mean "restartPolicy"?`}},
		{"0.5 spec.hostNetwrok", change(web + "  hostNetwrok: true\n"), both, []string{`did you mean "hostNetwork"?`}},
		{"0.5 comand of a container", change(web + "    comand: [x]\n"), both, []string{`did you mean "command"?`}},
		{"0.6 two documents", change(web + "---\n" + podWith("second", "s:1", "")), "other=o:1 web=w:1 second=s:1", nil},
		{"0.6 an empty document first", change("---\n# nothing\n---\n" + podWith("web", "w:2", "")), "other=o:1 web=w:2", nil},
		{"0.6 a key given twice", change(web + "    image: w:2\n"), both, []string{"web.yaml: Refused: ", "duplicate field"}},
		{"0.7 a backup beside it", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "web.yaml.bak"), podWith("web", "w:0", ""))
		}, both, []string{"web.yaml.bak: Ignored: "}},
		{"0.7 another file of the same pod", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "xweb.yaml"), podWith("web", "w:0", ""))
		}, both, []string{"xweb.yaml: Conflict: "}},
		{"0.8 a Deployment", func(h watchertest.Hand) {
			watchertest.Write(h.T, filepath.Join(h.At, "d.yaml"), "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: d}]}}\n")
		}, both, []string{"Deployment d"}},
		{"0.9 references to objects", change(podWith("web", "w:2", "    envFrom: [{configMapRef: {name: m}}, {secretRef: {name: s}}]\n  imagePullSecrets: [{name: s}]\n  volumes: [{name: v, persistentVolumeClaim: {claimName: v}}]\n") +
			"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n"), "other=o:1 web=w:2", []string{"ConfigMap m", "Secret s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "manifests")
			watchertest.Must(t, os.Mkdir(dir, 0o755))
			watchertest.Write(t, filepath.Join(dir, "other.yaml"), podWith("other", "o:1", ""))
			watchertest.Write(t, filepath.Join(dir, "web.yaml"), web)
			src := New(Config{Path: dir, Load: realLoad})
			src.graces = graces{}
			defer src.stopListening()
			look := func() (string, string) {
				set, _ := src.scanAll()
				pods, rest := answersOf(set)
				return pods, strings.Join(rest, "\n")
			}
			if pods, rest := look(); pods != both || rest != "" {
				t.Fatalf("before: %s; %s", pods, rest)
			}
			tt.do(watchertest.Hand{T: t, At: dir})
			for range 3 { // and it stays so
				pods, rest := look()
				if pods != tt.pods {
					t.Errorf("pods are %s, want %s; %s", pods, tt.pods, rest)
				}
				for _, want := range tt.says {
					if !strings.Contains(rest, want) {
						t.Errorf("%q is not in %q", want, rest)
					}
				}
				if len(tt.says) == 0 && rest != "" {
					t.Errorf("it says %s", rest)
				}
			}
		})
	}
}
