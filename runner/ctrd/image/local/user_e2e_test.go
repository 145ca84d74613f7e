//go:build e2e

package local_test

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/imagetest"
	"monopod/e2e/testimages"
)

func TestUsersOfAnImage(t *testing.T) {
	c := imagetest.Containerd(t)
	s := imagetest.Store(t, c, nil)
	ref := testimages.Registry(t) + "/a:1"
	testimages.Push(t, ref, testimages.Busybox(t, func(c *v1.Config) { c.User = "app" }))
	img, err := s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	u, err := s.Local.ResolveUser(t.Context(), img, nil, nil)
	imagetest.Check(t, err)
	if u.UID != 1000 || u.GID != 1000 || !slices.Equal(u.Groups, []uint32{29, 2000}) {
		t.Errorf("%+v", u)
	}

	ref = testimages.Registry(t) + "/scratch:1"
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{{Path: "x", Content: []byte("x"), Mode: 0o644}}, nil))
	img, err = s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	u, err = s.Local.ResolveUser(t.Context(), img, nil, nil)
	imagetest.Check(t, err)
	if u.UID != 0 || u.GID != 0 || len(u.Groups) != 0 {
		t.Errorf("image without /etc/passwd: %+v", u)
	}
	if left, err := imagetest.Snapshots(t, c); err != nil || slices.ContainsFunc(left, func(k string) bool { return strings.HasPrefix(k, "monopod-look") }) {
		t.Errorf("snapshots left: %v, %v", left, err)
	}

	// A link that leaves the image must not read the host's file.
	ref = testimages.Registry(t) + "/evil:1"
	testimages.Push(t, ref, testimages.FromFiles(t, []testimages.File{
		{Path: "etc", Mode: 0o755},
		{Path: "etc/passwd", Link: "../../../../../../etc/hostname", Mode: 0o777},
		{Path: "etc/group", Content: []byte("g:x:7:\n"), Mode: 0o644},
	}, func(c *v1.Config) { c.User = "5:g" }))
	img, err = s.Ensure(t.Context(), ref, corev1.PullIfNotPresent)
	imagetest.Check(t, err)
	if u, err := s.Local.ResolveUser(t.Context(), img, nil, nil); err != nil || u.UID != 5 || u.GID != 7 {
		t.Errorf("%+v, %v", u, err)
	}
}
