//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
	"monopod/node"
)

// bring changes the image of a tag to an edition, like replacing a preloaded archive, and returns its digest.
func (in *instance) bring(tag, edition string) string {
	in.t.Helper()
	img := testimages.Busybox(in.t, func(c *v1.Config) { c.Env = append(c.Env, "EDITION="+edition) })
	digest, err := img.Digest()
	if err != nil {
		in.t.Fatal(err)
	}
	path := filepath.Join(in.dir, "images", "moving.tar")
	imported := func() int {
		n := 0
		for line := range strings.Lines(in.log.String()) {
			if strings.Contains(line, "preload archive imported") && strings.Contains(line, path) {
				n++
			}
		}
		return n
	}
	before := imported()
	testimages.ArchiveOf(in.t, path, img, tag)
	in.eventually("edition "+edition+" is imported", func() error {
		if imported() == before {
			return errors.New("it is not")
		}
		return nil
	})
	return digest.String()
}

// hasBlob reports whether the containerd of the instance has the content of a digest.
func (in *instance) hasBlob(digest string) bool {
	in.t.Helper()
	_, err := os.Stat(filepath.Join(in.dir, "root", "containerd", "io.containerd.content.v1.content", "blobs", strings.ReplaceAll(digest, ":", "/")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		in.t.Fatal(err)
	}
	return err == nil
}

// TestARollbackRunsTheImageThatItsTagStoodFor moves a tag that all revisions of a pod use. There is no registry.
func TestARollbackRunsTheImageThatItsTagStoodFor(t *testing.T) {
	in := newInstance(t)
	d := in.newDiary("tag")
	in.start()
	const tag = "monopod.test/moving:stable"
	write := func(edit string) {
		t.Helper()
		text := d.pod("tag", "", d.writer("c", "trap 'exit 0' TERM; say $EDITION-"+edit+"; while :; do sleep 3600 & wait $!; done",
			"    readinessProbe: {exec: {command: [sh, -c, '[ $EDITION != bad ]']}, periodSeconds: 1}"))
		text = strings.Replace(text, "image: "+image, "image: "+tag, 1)
		in.put("tag", strings.Replace(text, "metadata: {name: tag}", `metadata: {name: tag, annotations: {monopod.dev/auto-rollback: "true", monopod.dev/ready-deadline: 20s, monopod.dev/soak: 1s}}`, 1))
	}
	runs := func(digest string) {
		t.Helper()
		in.pod("tag", "is Ready with revision 1", func(p corev1.Pod) bool {
			return isReady(p) && p.Annotations[node.AnnotationRevision] == "1" && p.Annotations[node.AnnotationManifest] != ""
		})
		if got := in.history("tag").Revision(1).Images["c"]; got != digest {
			t.Errorf("revision 1 has the image %s instead of %s", got, digest)
		}
	}
	one := in.bring(tag, "one")
	write("1")
	in.ready("tag")
	in.outcome("tag", 1, "Ready")
	runs(one)
	d.wait("one-1")

	// An automatic rollback, because the new image is bad.
	bad := in.bring(tag, "bad")
	write("2")
	in.outcome("tag", 2, "Failed")
	d.wait("one-1 bad-2 one-1")
	runs(one)

	// The pod starts again, after a power cut, and after the tag has been moved once more.
	in.kill9()
	in.powerCut()
	d.clear()
	in.start()
	d.wait("one-1")
	runs(one)
	two := in.bring(tag, "two")
	in.kill9()
	in.powerCut()
	d.clear()
	in.start()
	d.wait("one-1")
	runs(one)

	// Manual rollbacks, also to the revision that was never Ready, and forward again. The status shows which image it was.
	write("3")
	if r := in.outcome("tag", 3, "Ready"); r.Images["c"] != two {
		t.Errorf("revision 3 has the images %v, not %s", r.Images, two)
	}
	d.wait("one-1 two-3")
	if out, err := in.run("rollback", "pod", "tag", "--to", "2"); err != nil || !strings.Contains(out, "runs revision 2 instead of 3") {
		t.Fatalf("%v: %s", err, out)
	}
	d.wait("one-1 two-3 bad-2")
	if r := in.history("tag").Revision(2); r.Outcome != "Failed" || r.Images["c"] != bad {
		t.Errorf("revision 2 has the images %v, not %s: %s", r.Images, bad, r.Outcome)
	}
	if out, err := in.run("rollback", "pod", "tag"); err != nil || !strings.Contains(out, "runs revision 1 instead of 3") {
		t.Fatalf("%v: %s", err, out)
	}
	d.wait("one-1 two-3 bad-2 one-1")
	runs(one)

	// The images are removed with their revisions; the current image of the tag is kept.
	in.drop("tag")
	in.gone("tag")
	in.eventually("its revisions are gone", func() error {
		if _, err := os.Stat(filepath.Join(in.dir, "root", "revisions", "default", "tag")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("they are there: %w", err)
		}
		return nil
	})
	in.kill9()
	in.start()
	in.eventually("their images are gone", func() error {
		if in.hasBlob(one) || in.hasBlob(bad) {
			return errors.New("one is there")
		}
		return nil
	})
	if !in.hasBlob(two) {
		t.Error("the image of the tag is gone")
	}
}
