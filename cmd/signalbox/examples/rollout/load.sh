# load.sh ID DIR: serves the version that it is given, a table of code, latitude and longitude, from DIR/data.csv. Exit 9: it is no such table.
while test "$1" = a-3 -a -e "$2/../slow"; do sleep 0.1; done
if test "$1" = b-2 -a -e "$2/../hang"; then exec sleep 1000; fi
awk -F, 'NF != 3 || $2 !~ /^-?[0-9.]+$/ || $3 !~ /^-?[0-9.]+$/ { bad = 1 } END { exit bad || NR == 0 }' "$SIGNALBOX_PAYLOAD" || exit 9
cp "$SIGNALBOX_PAYLOAD" "$2/data.new"
mv "$2/data.new" "$2/data.csv"
echo "$1 serves version $SIGNALBOX_VERSION: $(wc -l <"$2/data.csv") airports" >&2
