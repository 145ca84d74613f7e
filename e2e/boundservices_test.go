//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/node/apiserver/apitest"
)

// TestServicesOfTheAPIServerLeadToItsPods: without kube-proxy, at the addresses allocated by the API server; also while that is down.
func TestServicesOfTheAPIServerLeadToItsPods(t *testing.T) {
	s := apitest.Start(t, apitest.Options{})
	in := newInstance(t, "kubeconfig: "+s.Kubeconfig(s.Address, apitest.Node("e2e")), "apiServerPods: true", "apiServerServices: true")
	front := corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: "front"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}},
		},
	}
	s.Must(http.MethodPost, "/api/v1/namespaces/default/services", front, &front)
	in.start()
	serves := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		p.Labels, c.Image, c.Ports = map[string]string{"app": "web"}, image, []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		c.Command = []string{"sh", "-c", "mkdir /w && echo it works > /w/index.html && exec httpd -f -p 8080 -h /w"}
	}
	s.Eventually("the node takes pods", func() error { return s.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, nil) })
	s.Bind("e2e", "web", serves)
	s.Bind("e2e", "client", func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
	in.ready("web")
	in.ready("client")
	answers := func(when string) {
		t.Helper()
		for _, url := range []string{"http://" + front.Spec.ClusterIP, "http://$FRONT_SERVICE_HOST:$FRONT_SERVICE_PORT_HTTP", "http://front"} {
			in.eventually(url+" answers "+when, func() error {
				out, err := in.run("exec", "client", "--", "sh", "-c", "timeout 5 wget -qO- "+url)
				if err != nil || !strings.Contains(out, "it works") {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
		}
		in.eventually("its node port answers "+when, func() error {
			out, err := exec.CommandContext(t.Context(), "curl", "-sS", "-m", "5", fmt.Sprintf("http://127.0.0.1:%d/", front.Spec.Ports[0].NodePort)).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "it works") {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	answers("at first")
	s.Stop()
	in.kill9()
	in.start()
	answers("without the API server, after a restart")
	s.Start()
	s.Must(http.MethodDelete, "/api/v1/namespaces/default/services/front", nil, nil)
	in.eventually("a deleted Service leads nowhere", func() error {
		if out, err := in.run("exec", "client", "--", "timeout", "2", "wget", "-qO-", "http://"+front.Spec.ClusterIP); err == nil {
			return errors.New(out)
		}
		return nil
	})
	for _, name := range []string{"web", "client"} {
		s.Must(http.MethodDelete, mirrors+name, nil, nil)
		in.gone(name)
	}
}
