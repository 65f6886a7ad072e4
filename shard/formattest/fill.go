package formattest

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Fill gives every field that the pointer leads to a value other than zero, the same each time:
// numbers and strings count up, lists have one element. It leaves alone pointers, maps and
// functions in fields that begin with a small letter.
func Fill(pointer any) {
	next := 0
	fill(reflect.ValueOf(pointer).Elem(), &next)
}

func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*next%100 + 1))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*next%100 + 1))
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", *next))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), next)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), next)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, next)
		fill(value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				if k := f.Kind(); k == reflect.Pointer || k == reflect.Map || k == reflect.Func ||
					k == reflect.Interface {
					continue
				}
				f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
			}
			if v.Type().Field(i).Name == "Fields" && f.CanUint() {
				f.SetUint(1<<f.Type().Bits() - 1) // it says which of the others are written
				continue
			}
			fill(f, next)
		}
	}
}
