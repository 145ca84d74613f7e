package imageuse

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/imagestore"
	"monopod/runner/ctrd/metatest"
	"monopod/runner/ctrd/record"
	"monopod/runner/spec"
)

// newImages returns the images of an instance with two containers, which have ended, and a context with its namespace.
func newImages(t *testing.T) (*Images, context.Context) {
	t.Helper()
	c, ctx := metatest.New(t)
	ns, _ := namespaces.Namespace(ctx)
	index, log := record.NewIndex(), slog.New(slog.DiscardHandler)
	i := &Images{
		Store: imagestore.New(c, imagestore.Config{Snapshotter: metatest.Snapshotter, Log: log}), Client: c, Index: index, Dir: t.TempDir(), News: NewNews(), Log: log,
		WithNamespace: func(ctx context.Context) context.Context { return namespaces.WithNamespace(ctx, ns) },
	}
	return i, ctx
}

func container(id, pod, image string, volumes map[string]string) *record.Container {
	return &record.Container{ID: id, Meta: record.ContainerMeta{Key: manifests.Key{Namespace: "default", Name: pod}, Image: image, VolumeImages: volumes}}
}

func TestImagesOfContainersAndOfTheirVolumesAreInUse(t *testing.T) {
	i, ctx := newImages(t)
	i.Index.PutContainer(container("1", "web", "sha256:a", map[string]string{"data": "sha256:b"}))
	i.Index.PutContainer(container("2", "old", "", nil)) // of a release that did not record it
	metatest.Container(ctx, t, i.Client, "other", map[string]string{record.LabelImage: "sha256:c", record.LabelVolumeImage + "x": "sha256:d", "more": "sha256:e"})
	for shared, want := range map[bool][]string{false: {"sha256:a", "sha256:b"}, true: {"sha256:a", "sha256:b", "sha256:c", "sha256:d"}} {
		i.Shared = shared
		used, err := i.UsedImages(t.Context())
		if got := slices.Sorted(maps.Keys(used)); err != nil || !slices.Equal(got, want) {
			t.Errorf("shared %t: %q, %v, want %q", shared, got, err, want)
		}
	}
}

func TestAnImageIsListedWithItsPods(t *testing.T) {
	i, ctx := newImages(t)
	app, _ := metatest.Image(ctx, t, i.Client, "/app", "docker.io/library/app:1")
	data, _ := metatest.Image(ctx, t, i.Client, "/data", "docker.io/library/data:1")
	metatest.Image(ctx, t, i.Client, "/spare", "docker.io/library/spare:1")
	i.Index.PutContainer(container("1", "web", app.Digest.String(), map[string]string{"data": data.Digest.String()}))
	i.Index.PutContainer(container("2", "api", app.Digest.String(), nil))
	all, err := i.List(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for n, want := range [][]string{{"default/api", "default/web"}, {"default/web"}, nil} {
		if !slices.Equal(all[n].Pods, want) || all[n].UsedNow != (want != nil) {
			t.Errorf("%v: pods %v, in use %t, want %v", all[n].Names, all[n].Pods, all[n].UsedNow, want)
		}
	}
}

func TestAnImageInUseIsRemovedOnlyByForce(t *testing.T) {
	i, ctx := newImages(t)
	app, _ := metatest.Image(ctx, t, i.Client, "/app", "docker.io/library/app:1")
	i.Index.PutContainer(container("1", "web", app.Digest.String(), nil))
	if err := i.Remove(t.Context(), app.Digest.String(), false); !errors.Is(err, image.ErrNeeded) || len(i.Changed()) != 0 {
		t.Errorf("%v, %d news", err, len(i.Changed()))
	}
	if err := i.Remove(t.Context(), app.Digest.String(), true); err != nil || len(i.Changed()) != 1 {
		t.Errorf("by force: %v, %d news", err, len(i.Changed()))
	}
	if all, err := i.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, %v", all, err)
	}
}

// TestARollbackNeedsNoRegistry: a recorded digest that is here is not pulled, whatever the pull policy says.
func TestARollbackNeedsNoRegistry(t *testing.T) {
	i, ctx := newImages(t)
	app, config := metatest.Image(ctx, t, i.Client, "/app", "docker.io/library/app:1")
	pod := &manifests.Pod{Images: map[string]string{"c": app.Digest.String()}, Object: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "app:2", ImagePullPolicy: corev1.PullAlways}}},
	}}
	if err := i.EnsureImage(ctx, pod, runner.Action{Container: "c"}); err != nil {
		t.Error(err)
	}
	img, err := i.EnsureImageOf(ctx, pod, "c", "app:2", corev1.PullAlways)
	if err != nil || img.ID != config.Digest.String() {
		t.Errorf("%+v, %v", img, err)
	}
	if err := i.EnsureImage(ctx, pod, runner.Action{Container: "other"}); err == nil {
		t.Error("a container that the pod does not have has an image")
	}
	pod.Images = nil
	pod.Object.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	err = i.EnsureImage(ctx, pod, runner.Action{Container: "c"})
	if step, ok := errors.AsType[*runner.StepError](err); !ok || step.Reason != runner.ReasonErrImageNeverPull {
		t.Errorf("a tag that is not here: %v", err)
	}
}

func TestNewsOfImagesAreKeptUntilTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &Images{News: NewNews()}
		i.News.Tell()
		i.News.Wants(100)
		i.News.Wants(200)
		if len(i.Changed()) != 1 || i.Wanted() != 200 || i.Wanted() != 0 {
			t.Error("news are lost, or repeated")
		}
	})
}

func TestImagesOfVolumes(t *testing.T) {
	got := MountedImages(map[string]spec.Volume{"data": {Image: "sha256:a"}, "disk": {HostPath: "/x"}})
	if len(got) != 1 || got["data"] != "sha256:a" || MountedImages(map[string]spec.Volume{"disk": {}}) != nil {
		t.Errorf("%v", got)
	}
}
