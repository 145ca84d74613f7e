package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/streams"
)

// reach is what streams of this test lead to: a kubelet that says what it was asked, and ports that say their number once.
func reach() *streams.Handler {
	say := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.String()) })
	return streams.New(streams.Config{Streams: say, Node: say, Dial: func(_ context.Context, pod manifests.Key, port int) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			b := make([]byte, 4<<10)
			if _, err := far.Read(b); err == nil {
				fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s:%d", pod, port)
			}
		}()
		return near, nil
	}})
}

// connected are a pod behind a Service, and the node.
func connected() []kinds.Object {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}}
	pod.Name = "web-0"
	return []kinds.Object{
		pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lonely"}},
		&corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}}}, Ports: []corev1.EndpointPort{{Port: 9090}},
		}}},
	}
}

func TestStreamsLeadToPodsServicesAndTheNode(t *testing.T) {
	s := serveSite(t, Config{Streams: reach()}, connected()...)
	for _, c := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "namespaces/default/pods/web-0/log?tailLines=3", 200, "/containerLogs/default/web-0/app?tailLines=3"},
		{"POST", "namespaces/default/pods/web-0/exec?command=id&stdout=1", 200, "/exec/default/web-0/app?command=id&output=1"},
		{"GET", "namespaces/default/pods/web-0/attach?stdin=true&tty=true", 200, "/attach/default/web-0/app?input=1&tty=1"},
		{"POST", "namespaces/default/pods/web-0/portforward?ports=1&ports=2", 200, "/portForward/default/web-0?port=1%2C2"},
		{"GET", "namespaces/default/pods/gone/log", 404, `pods \"gone\" not found`},
		{"POST", "namespaces/default/pods/gone/exec?command=id", 404, "not found"},
		{"GET", "namespaces/default/pods/web-0/proxy/", 200, "default/web-0:8080"},
		{"PUT", "namespaces/default/pods/https:web-0:http/proxy/", 400, `has no port \"http\"`},
		{"GET", "namespaces/default/pods/ftp:web-0:1/proxy/", 400, "is invalid"},
		{"GET", "namespaces/default/pods/gone:80/proxy/", 404, "not found"},
		{"DELETE", "namespaces/default/services/web/proxy/x", 200, "default/web-0:9090"},
		{"OPTIONS", "namespaces/default/services/web:80/proxy/x", 200, "default/web-0:9090"},
		{"GET", "namespaces/default/services/web:81/proxy/x", 503, "no service port 81"},
		{"GET", "namespaces/default/services/lonely/proxy/x", 503, "no endpoints available"},
		{"GET", "namespaces/default/services/gone/proxy/x", 404, `services \"gone\" not found`},
		{"GET", "nodes/here/proxy/stats/summary", 200, "/stats/summary"},
		{"GET", "nodes/there/proxy/stats/summary", 404, `nodes \"there\" not found`},
	} {
		if code, body := s.body("", c.method, "/api/v1/"+c.path); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, body)
		}
	}
}

func TestStreamsAre503WhileNothingCanBeReached(t *testing.T) {
	without := serveSite(t, Config{}, connected()...)
	blind := serveSite(t, Config{Streams: reach()})
	blind.state.unseen[podKind] = errors.New("containers cannot be seen")
	for _, s := range []*site{without, blind} {
		for _, path := range []string{"log", "proxy/"} {
			code, body := s.body("", "GET", "/api/v1/namespaces/default/pods/web-0/"+path)
			if code != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"ServiceUnavailable"`) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
	}
}

// TestPortsOfTheMachineNeedAdmin: a pod in the network of the machine has its loopback addresses.
func TestPortsOfTheMachineNeedAdmin(t *testing.T) {
	objects := connected()
	objects[0].(*corev1.Pod).Spec.HostNetwork = true
	s := serveSite(t, Config{Streams: reach()}, objects...)
	own := serveSite(t, Config{Streams: reach()}, connected()...)
	for _, path := range []string{"pods/web-0/portforward?ports=2375", "pods/web-0:2375/proxy/", "services/web/proxy/"} {
		method := "POST"
		for user, want := range map[string]int{"ann/monopod:edit": http.StatusForbidden, "": http.StatusOK} {
			if code, body := s.body(user, method, "/api/v1/namespaces/default/"+path); code != want {
				t.Errorf("%q %s: %d %s", user, path, code, body)
			}
		}
		if code, body := own.body("ann/monopod:edit", method, "/api/v1/namespaces/default/"+path); code != http.StatusOK {
			t.Errorf("%s of a pod with its own network: %d %s", path, code, body)
		}
	}
}
