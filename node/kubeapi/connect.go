package kubeapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/streams"
	"monopod/node/kubeapi/writes"
)

// Connector serves log, exec, attach and portforward of pods. It needs Pod and Streams, but no State: pods can be reached even when no
// revision can be stored, or no other state is known yet.
func Connector(cfg Config) http.Handler {
	s := &Server{cfg: cfg}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		defer s.recovered(answer, r)
		req, err := request.Parse(r, cfg.Served)
		if err == nil {
			err = permit(cfg.Policy, attributes(r, req))
		}
		if err == nil && !reaches(req) {
			err = request.NotServed()
		}
		if err != nil {
			s.fail(answer, r, err)
			return
		}
		s.connect(answer, r, req)
	})
}

// Connects reports whether a request is one for a Connector.
func Connects(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") || !strings.Contains(r.URL.Path, "/pods/") {
		return false
	}
	req, err := request.Parse(r, kinds.Served{})
	return err == nil && reaches(req)
}

// reaches reports whether a request connects to the pod itself rather than to a server in it.
func reaches(req *request.Request) bool {
	return req.Kind != nil && req.Kind.Group == "" && req.Kind.Kind == "Pod" && connects(req) && req.Subresource != "proxy"
}

// pod returns the pod to connect to.
func (s *Server) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if s.cfg.Pod == nil {
		return lookUp[*corev1.Pod](ctx, s, "Pod", namespace, name)
	}
	pod, err := s.cfg.Pod(ctx, namespace, name)
	switch {
	case err != nil:
		return nil, writes.Unavailable(err)
	case pod == nil:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return pod, nil
}

// connect serves the subresources log, exec, attach, portforward and proxy.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if s.cfg.Streams == nil {
		s.fail(w, r, apierrors.NewServiceUnavailable("pod connections are disabled: this API is read-only"))
		return
	}
	if err := s.connectTo(w, r, req); err != nil {
		s.fail(w, r, err)
	}
}

// connectTo returns an error only if it has not written a response.
func (s *Server) connectTo(w http.ResponseWriter, r *http.Request, req *request.Request) error {
	if req.Subresource != "proxy" {
		pod, err := s.pod(r.Context(), req.Namespace, req.Name)
		if err == nil {
			err = s.admitTo(r, req, pod)
		}
		if err == nil {
			s.cfg.Streams.Serve(w, r, req, pod)
		}
		return err
	}
	if req.Kind.Kind == "Node" {
		_, err := lookUp[*corev1.Node](r.Context(), s, "Node", "", req.Name)
		if err == nil {
			s.cfg.Streams.ProxyNode(w, r, req)
		}
		return err
	}
	target, err := streams.ParseTarget(req.Name)
	if err != nil {
		return err
	}
	port := 0
	if req.Kind.Kind == "Service" {
		if target.Name, port, err = s.backend(r.Context(), req.Namespace, target); err != nil {
			return err
		}
	}
	pod, err := lookUp[*corev1.Pod](r.Context(), s, "Pod", req.Namespace, target.Name)
	if err != nil {
		return err
	}
	if err := access.AdmitPorts(access.UserOf(r.Context()), s.cfg.Policy, pod); err != nil {
		return err
	}
	if req.Kind.Kind == "Pod" {
		if port, err = target.PodPort(pod); err != nil {
			return err
		}
	}
	s.cfg.Streams.Proxy(w, r, req, pod, port, target.Secure)
	return nil
}

// admitTo returns why the user of a request may not connect to a pod.
func (s *Server) admitTo(r *http.Request, req *request.Request, pod *corev1.Pod) error {
	switch user := access.UserOf(r.Context()); req.Subresource {
	case "exec", "attach":
		return access.AdmitCommands(user, s.cfg.Policy, "run commands in", pod)
	case "portforward":
		return access.AdmitPorts(user, s.cfg.Policy, pod)
	}
	return nil
}

// backend chooses one of the pods that serve a port of a Service.
func (s *Server) backend(ctx context.Context, namespace string, t streams.Target) (pod string, port int, err error) {
	service, err := lookUp[*corev1.Service](ctx, s, "Service", namespace, t.Name)
	if err != nil {
		return "", 0, err
	}
	endpoints, err := lookUp[*corev1.Endpoints](ctx, s, "Endpoints", namespace, t.Name)
	if apierrors.IsNotFound(err) {
		endpoints, err = &corev1.Endpoints{}, nil
	}
	if err != nil {
		return "", 0, err
	}
	all, err := t.Backends(service, endpoints)
	if err != nil {
		return "", 0, err
	}
	one := all[rand.IntN(len(all))]
	return one.Pod, one.Port, nil
}

// lookUp returns an object of the core group, which is shared and must not be modified. The error is 404 if it does not exist, 503 if its
// kind cannot be read.
func lookUp[T kinds.Object](ctx context.Context, s *Server, kind, namespace, name string) (found T, err error) {
	k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind(kind))
	o, _, err := s.log.Get(ctx, k, namespace, name)
	if err != nil && ctx.Err() == nil {
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("cannot look up %s: %v", k.Plural, err))
	}
	if err != nil {
		return found, err
	}
	found, ok := o.(T)
	if !ok {
		return found, apierrors.NewNotFound(k.Resource().GroupResource(), name)
	}
	return found, nil
}
