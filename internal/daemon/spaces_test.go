package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"monopod/internal/config"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/manifests/spaces/spacestest"
	"monopod/runner/runtimetest"
)

// TestAPodKeepsRunningWithoutTheObjectsOfAnotherSpace: the first daemon has no boundaries, as versions before; the second has, and the same
// containers. The pod uses objects of each kind.
func TestAPodKeepsRunningWithoutTheObjectsOfAnotherSpace(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  runtimeClassName: k
  priorityClassName: k
  imagePullSecrets: [{name: s}]
  volumes: [{name: m, configMap: {name: m}}, {name: c, persistentVolumeClaim: {claimName: c}}]
  containers:
  - {name: c, image: i, command: [sh, -c, SCRIPT], envFrom: [{secretRef: {name: s}}], volumeMounts: [{name: m, mountPath: /m}, {name: c, mountPath: /c}]}
`
	const objects = `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: shop}, data: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}, stringData: {a: b}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, namespace: shop}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: k}, handler: runc}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: k}, value: 7}
`
	synctest.Test(t, func(t *testing.T) {
		rt, out := runtimetest.NewFake(), &daemontest.SyncBuffer{}
		read := spacestest.Content(t, "fleet", strings.ReplaceAll(pod, "SCRIPT", fmt.Sprintf("%q", runtimetest.ScriptServe)))
		theirs := spacestest.Content(t, "site", objects)
		run := func(level string, sharing map[string][]string) string {
			c := newTestCore(t, rt)
			c.deps.Log = slog.New(slog.NewTextHandler(out, nil))
			c.cfg.RemoteSources = []config.RemoteSource{{Name: "site", PodSecurity: level}, {Name: "fleet", PodSecurity: level}}
			c.cfg.Sharing = sharing
			ctx, cancel := context.WithCancel(t.Context())
			var all errgroup.Group
			all.Go(func() error { return c.state.Rollouts.Run(ctx) })
			all.Go(func() error { return newRuntimeLoop(c, &machineParts{}).run(ctx) })
			reported := map[string]bool{}
			for _, name := range c.cfg.SourceNames() {
				reported[name] = true
			}
			c.state.Publish(model.Desired{
				Pods: read.Pods, Objects: slices.Concat(read.Objects, theirs.Objects), Order: c.cfg.SourceNames(), Reported: reported,
			})
			time.Sleep(30 * time.Minute) // each kind of period has passed
			synctest.Wait()
			views, err := c.state.Pods()
			if err != nil || len(views) != 1 || len(views[0].Pod.Status.ContainerStatuses) != 1 {
				t.Fatal(len(views), err)
			}
			p := views[0].Pod
			st := p.Status.ContainerStatuses[0]
			cancel()
			if err := all.Wait(); err != nil {
				t.Error(err)
			}
			return fmt.Sprint(p.UID, " ", st.ContainerID, " ", st.RestartCount, " ", st.State, " ", p.Status.Phase)
		}
		before := run("privileged", nil)
		if text := out.String(); strings.Contains(text, "sharing") || !strings.HasSuffix(before, "Running") {
			t.Fatalf("%s\n%s", before, text)
		}
		if after := run("baseline", nil); after != before {
			t.Errorf("the pod was %s, now %s", before, after)
		}
		text := out.String()
		for _, want := range []string{
			`sharing="{fleet: [site/shop, site]}"`, "pod shop/web of fleet: ConfigMap shop/m of site", "Secret shop/s of site", "PersistentVolumeClaim shop/c of site",
			"RuntimeClass k of site", "PriorityClass k of site",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in the log:\n%s", want, text)
			}
		}
		if n := strings.Count(text, "pods refer to objects of other sources"); n != 1 {
			t.Errorf("%d warnings", n)
		}
		if after := run("baseline", map[string][]string{"fleet": {"site"}}); after != before || strings.Count(out.String(), "pods refer to objects of other sources") != 1 {
			t.Errorf("shared: %s; %s", after, out)
		}
	})
}
