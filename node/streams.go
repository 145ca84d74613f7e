package node

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	podstream "monopod/node/stream"
)

// Streams serves the kubelet's paths that reach into pods, and the logs of containers; nil when there is no Reach. Whoever mounts
// it elsewhere decides who may.
func (s *Server) Streams() *podstream.Handler { return s.streams }

// streamRoutes adds them to the socket, whose requests are let through by method: to open a stream by GET changes something too.
func (s *Server) streamRoutes(mux *http.ServeMux) {
	if s.streams == nil {
		return
	}
	for prefix, looks := range podstream.Paths() {
		mux.HandleFunc(prefix, func(w http.ResponseWriter, r *http.Request) {
			if err := mayChange(r.Context()); err != nil && !looks {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			s.streams.ServeHTTP(w, r)
		})
	}
}

// FindPod implements stream.Pods: by the name of the pod, else by the one that others know it by.
func (s *Server) FindPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	views, err := s.views(ctx)
	found := selectPods(views, podFilter{namespace: namespace, name: name})
	if len(found) == 0 && s.cfg.Alias != nil {
		if own, ok := s.cfg.Alias(name); ok {
			found = selectPods(views, podFilter{namespace: namespace, name: own})
		}
	}
	if len(found) > 0 && name != "" && namespace != "" {
		return &found[0], nil
	}
	return nil, err
}

// containerLogs is log at the kubelet's path, with its errors: bare texts.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	s.serveLog(w, r, r.PathValue("container"), func(e *apierrors.StatusError) {
		http.Error(w, e.ErrStatus.Message, int(e.ErrStatus.Code))
	})
}
