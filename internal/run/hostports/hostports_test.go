package hostports

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAReservedPortIsGivenToNobodyElse(t *testing.T) {
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		port, held, err := Reserve(protocol, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listen := func() error {
			if protocol == corev1.ProtocolUDP {
				c, err := net.ListenPacket("udp", address)
				if err == nil {
					err = c.Close()
				}
				return err
			}
			l, err := net.Listen("tcp", address)
			if err == nil {
				err = l.Close()
			}
			return err
		}
		if err := listen(); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s %s: %v", protocol, address, err)
		}
		if protocol == corev1.ProtocolTCP {
			if c, err := net.DialTimeout("tcp", address, time.Second); err == nil {
				_ = c.Close()
				t.Error("somebody answers on a port that is only reserved")
			}
		}
		if err := errors.Join(held.Close(), listen()); err != nil {
			t.Errorf("it is not free again: %v", err)
		}
	}
	if _, _, err := Reserve(corev1.ProtocolSCTP, "", 0); err == nil {
		t.Error("SCTP is reserved")
	}
}
