//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"monopod/e2e/testimages"
)

// TestImagesOfAMachine pulls, refuses and collects images with the whole agent. Its disk counts as full all the time.
func TestImagesOfAMachine(t *testing.T) {
	t.Parallel()
	reg := testimages.Registry(t)
	for _, name := range []string{"spare", "wanted", "later"} {
		testimages.Push(t, reg+"/"+name+":1", testimages.Busybox(t, func(c *v1.Config) { c.Env = []string{"NAME=" + name} }))
	}
	in := newInstance(t, "imageGCHighThresholdPercent: 1", "imageGCLowThresholdPercent: 0", "imageMinimumGCAge: 1s",
		"imagePolicy: [{match: "+reg+"/forbidden, action: deny}, {match: '*'}]")
	in.put("web", strings.ReplaceAll(sleeper("web", "echo up"), image, reg+"/wanted:1"))
	in.put("bad", strings.ReplaceAll(sleeper("bad", "echo up"), image, reg+"/forbidden/x:1"))
	in.put("cron", fmt.Sprintf("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: cron}\nspec:\n  schedule: \"0 3 1 1 *\"\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: %q}]}}}}\n", reg+"/later:1"))
	in.start()
	in.ready("web")
	if out, err := in.run("pull", reg+"/spare:1", reg+"/later:1"); err != nil || !strings.Contains(out, reg+"/spare:1: pulled sha256:") {
		t.Fatalf("pull: %v\n%s", err, out)
	}
	if _, err := in.run("pull", reg+"/forbidden/x:1"); err == nil || !strings.Contains(err.Error(), "ImageNotAllowed") {
		t.Errorf("what is forbidden is pulled: %v", err)
	}
	in.eventually("why says that the image is not allowed", func() error {
		if out, err := in.run("why", "bad"); err != nil || !strings.Contains(out, "imagePolicy does not allow image") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	var list string
	in.eventually("what nobody needs is gone", func() error {
		out, err := in.run("images", "-o", "wide")
		if err != nil || strings.Contains(out, reg+"/spare:1") {
			return fmt.Errorf("%w: %s", err, out)
		}
		list = out
		return nil
	})
	for _, want := range []string{reg + "/wanted:1", reg + "/later:1", image, "in use by default/web", "manifest of CronJob default/cron", "preload " + filepath.Join(in.dir, "images", "busybox.tar")} {
		if !strings.Contains(list, want) {
			t.Errorf("%q is not in\n%s", want, list)
		}
	}
	in.eventually("the disk is said to be full", func() error {
		if out, err := in.run("events"); err != nil || !strings.Contains(out, "FreeDiskSpaceFailed") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
