package describe

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/model"
	"monopod/internal/printer"
	"monopod/node"
)

func TestWhatDescribeShowsOfAService(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{node.AnnotationEndpoints: "80/TCP -> 10.87.0.2:8080\n53/UDP -> <none>"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10", "fd10:96::10"}, ExternalIPs: []string{"203.0.113.1"}, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}, {Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(5353)}},
		},
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.7"}}
	model.Refuse(s, "the first", metav1.Time{})
	model.Refuse(s, "and the second", metav1.Time{})
	var out strings.Builder
	(&description{w: printer.New(&out), now: time.Now()}).service(s)
	want := `Other cluster IPs: fd10:96::10
External IPs:      203.0.113.1
Load balancer:     192.0.2.7
Target ports:      80/TCP -> web http
                   53/UDP -> 5353
Selector:          app=web
Endpoints:         80/TCP -> 10.87.0.2:8080
                   53/UDP -> <none>
Not given:         the first
                   and the second
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
	out.Reset()
	(&description{w: printer.New(&out), now: time.Now()}).service(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "None"}})
	if out.Len() > 0 {
		t.Error(out.String())
	}
}
