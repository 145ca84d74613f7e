package locks

import (
	"testing"
	"testing/synctest"
)

func TestKeyLockExcludesOneKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k ByKey
		unlock := k.Lock("a")
		k.Lock("b")()
		got := false
		go func() {
			defer k.Lock("a")()
			got = true
		}()
		synctest.Wait()
		if got {
			t.Error("lock was given twice")
		}
		unlock()
		synctest.Wait()
		if !got || len(k.held) != 0 {
			t.Errorf("got %v, %d keys left", got, len(k.held))
		}
	})
}
