//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestKubectlSeesWhatOnlyMonopodHas: sources with their verdicts, revisions, images and the agent are objects like others.
func TestKubectlSeesWhatOnlyMonopodHas(t *testing.T) {
	t.Parallel()
	in, admin := servesKubernetes(t)
	in.put("bad", "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec:\n  containers:\n  - name: c\n    image: 7 8\n    imagePullPolicy: Sometimes\n")
	var bad string
	in.eventually("the source is refused", func() error {
		if bad = strings.TrimSpace(admin.prints("get", "sources", "--field-selector=status.verdict=Refused", "-o", "name")); bad == "" {
			return fmt.Errorf("%s", admin.prints("get", "sources"))
		}
		return nil
	})
	admin.says([][2]string{
		{"get sources,revisions,images,agents", "source.monopod.dev/"},
		{"get podreports", "file"},
		{"get podreports -A -o name", "podreport.monopod.dev/file"},
		{"get podreport file -o yaml", "kind: PodReport"},
		{"get sources -o wide", "line "},
		{"get sources", "Refused"},
		{"get " + bad + " -o jsonpath={.status.causes[*].field}", "imagePullPolicy"},
		{"get " + bad + " -o jsonpath={.status.causes[*].reason}", "FieldValue"},
		{"get " + bad + " -o yaml", "line: "},
		{"get revisions -o wide", "file-1"},
		{"get revisions --field-selector pod=file -o name", "revision.monopod.dev/file-1"},
		{"get revision file-1 -o yaml", "outcome: Ready"},
		{"get images -o yaml", "neededBy:"},
		{"get agents -o wide", "SHIMS"},
		{"get agent e2e -o yaml", "residentBytes: "},
		{"explain source.status.causes", "retryAt"},
		{"explain revision.status", "outcome"},
		{"explain image", "sizeBytes"},
		{"explain agent", "residentBytes"},
	})
	if version := admin.prints("get", bad, "-o", "jsonpath={.metadata.resourceVersion}"); !isVersion(version) {
		t.Errorf("the version of %s is %q", bad, version)
	}
	// Watches: the watch of sources sees the repair, and those of images and the agent begin with the existing objects.
	for _, kind := range []string{"sources", "revisions", "images", "agents", "podreports"} {
		lines, end := admin.follows("get", kind, "--watch", "--no-headers")
		if !lines.Scan() {
			t.Errorf("a watch of %s shows nothing: %v", kind, lines.Err())
		}
		end()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	repaired := make(chan string, 1)
	go func() {
		out, errs, _ := admin.try("", "wait", bad, "--for=condition=Accepted", "--timeout=30s")
		repaired <- out + errs
	}()
	in.put("bad", sleeper("bad", "echo repaired"))
	select {
	case said := <-repaired:
		if !strings.Contains(said, "condition met") {
			t.Error(said)
		}
	case <-ctx.Done():
		t.Error("kubectl wait does not end")
	}
}

// isVersion reports whether a text is a resource version, which clients may compare as a number.
func isVersion(text string) bool {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return err == nil && n > 0
}
