set dashtype 1 solid
set dashtype 2 (9, 4)
set dashtype 3 (4, 3)
set dashtype 4 (9, 3, 2, 3)
axis_colour = '#444444'
grid_colour = '#e2e2e2'
set border 3 linecolor rgb axis_colour linewidth 0.8
set tics nomirror out scale 0.6 textcolor rgb 'black'
set grid back linetype 1 linecolor rgb grid_colour linewidth 0.8
set key outside top left horizontal Left reverse noenhanced samplen 2.6 spacing 1.15 font font_name.',12'
