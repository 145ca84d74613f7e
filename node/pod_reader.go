package node

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
)

// podReader finds pods. It implements stream.Pods.
type podReader struct {
	pods Pods
	// leaving and alias may be nil; see Config.
	leaving func(there []PodView) []PodView
	alias   func(name string) (string, bool)
}

// views returns all pods. While the daemon starts it waits, for at most startPatience.
func (p *podReader) views(ctx context.Context) (views []PodView, err error) {
	err = p.patient(ctx, func() (err error) { views, err = p.pods.Pods(); return err })
	if p.leaving != nil {
		views = append(views, p.leaving(views)...)
	}
	return views, err
}

// patient calls ask again after each change as long as it returns ErrStarting, for at most startPatience.
func (p *podReader) patient(ctx context.Context, ask func() error) error {
	ctx, stop := context.WithTimeout(ctx, startPatience)
	defer stop()
	changed, cancel := p.pods.Subscribe()
	defer cancel()
	for {
		if err := ask(); !errors.Is(err, ErrStarting) {
			return err
		}
		select {
		case <-ctx.Done():
			return ErrStarting
		case <-changed:
		}
	}
}

// FindPod implements stream.Pods: by the name of the pod, else by the one that others know it by.
func (p *podReader) FindPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	views, err := p.views(ctx)
	found := selectPods(views, podFilter{namespace: namespace, name: name})
	if len(found) == 0 && p.alias != nil {
		if own, ok := p.alias(name); ok {
			found = selectPods(views, podFilter{namespace: namespace, name: own})
		}
	}
	if len(found) > 0 && name != "" && namespace != "" {
		return &found[0], nil
	}
	return nil, err
}
