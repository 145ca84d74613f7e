//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod/runner/ctrd/network/services"
)

// serviceOf returns the columns of a Service in the output of get.
func (in *instance) serviceOf(name string) (clusterIP string, nodePort string) {
	in.t.Helper()
	in.eventually("Service "+name+" has an address", func() error {
		out, err := in.run("get", "services")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) == 7 && f[1] == name && strings.Contains(f[3], ".") {
				clusterIP = f[3]
				_, after, _ := strings.Cut(f[5], ":")
				nodePort, _, _ = strings.Cut(after, "/")
				return nil
			}
		}
		return fmt.Errorf("get services prints %q", out)
	})
	return clusterIP, nodePort
}

// TestServicesWorkLikeInKubernetes: port differs from targetPort, which has a name, and there is a node port.
func TestServicesWorkLikeInKubernetes(t *testing.T) {
	in := newInstance(t)
	in.start()
	app := strings.Replace(deployment(2, web), "name: c, image:", "name: c, ports: [{name: http, containerPort: 8080}], image:", 1)
	app = strings.Replace(app, "spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}", "spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}", 1)
	in.put("web", app)
	in.ready("web-0")
	in.ready("web-1")
	clusterIP, nodePort := in.serviceOf("front")
	in.asks("ClusterFirst", "default", "wget -qO- http://front | cut -c1-4", "web-")
	in.asks("ClusterFirst", "default", "nslookup front.default.svc.cluster.local | grep -o "+strings.ReplaceAll(clusterIP, ".", "[.]"), clusterIP)
	in.asks("ClusterFirst", "default", "wget -qO- http://$FRONT_SERVICE_HOST:$FRONT_SERVICE_PORT_HTTP | cut -c1-4", "web-")
	fetch := func(url string) func() error {
		return func() error {
			out, err := exec.Command("curl", "-sS", "-m", "2", url).CombinedOutput()
			if err == nil && !strings.HasPrefix(string(out), "web-") {
				err = fmt.Errorf("it answers %q", out)
			}
			return err
		}
	}
	in.eventually("the machine reaches the Service", fetch("http://"+clusterIP))
	in.eventually("the machine reaches the node port", fetch("http://127.0.0.1:"+nodePort))
	table := services.TableName(filepath.Join(in.dir, "root", "cni"))
	if out, err := exec.Command("nft", "delete", "table", "ip", table).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	in.eventually("the rules are repaired", fetch("http://"+clusterIP))

	before := in.ready("web-0")
	in.kill9()
	in.start()
	if again, _ := in.serviceOf("front"); again != clusterIP {
		t.Errorf("the address was %s and is %s", clusterIP, again)
	}
	in.put("other", "apiVersion: v1\nkind: Service\nmetadata: {name: other}\nspec: {selector: {app: none}, ports: [{port: 80}]}\n")
	otherIP, _ := in.serviceOf("other")
	in.eventually("connections without endpoint are refused", func() error {
		out, err := exec.Command("curl", "-sS", "-m", "2", "http://"+otherIP).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "refused") && !strings.Contains(string(out), "Failed to connect") && !strings.Contains(string(out), "Couldn't connect") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if after := in.ready("web-0"); containerID(after, "c") != containerID(before, "c") {
		t.Error("another Service restarted a container")
	}
	in.drop("web")
	in.podNames()
	in.eventually("no rules are left", func() error {
		out, err := exec.Command("nft", "list", "tables").CombinedOutput()
		if err == nil && strings.Contains(string(out), table) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}
